#!/usr/bin/env python3
"""A small HTTP server of byte ranges that can fail on purpose, for the tests of remote data.

range_server.py FOLDER PORTFILE [--port N] [--log FILE] [--faults FILE] [--delay MS] [--seed N] [--no-etag]
    [--no-modified] [--strip PREFIX] [--tls PEM]

Serves the files of FOLDER with Range, If-Match, ETag (of size and mtime) and Last-Modified; writes its port
to PORTFILE. A web identity gets keys by POST, as from STS; a container, with the token `pod`, at /keys. FAULTS is
read again for each request: a line NAME=VALUE each, all of them off by default:
  error=SHARE      503 with S3's XML              reset=SHARE     the connection is reset in the body
  short=SHARE      a body that ends early         slow=SHARE      slow_s=SECONDS before the answer
  whole=1          200 and the whole file         status=CODE     this answer for all
  code=NAME        S3's <Code> of that answer     other_range=1   another Content-Range
  hang=1           no answer while it stands      etag=TEXT       another ETag, and no check of If-Match
  keys=NUMBER      only requests with keys of a role, each of them for so many requests
  sts=CODE         no keys for a web identity
  after=TEXT       faults only behind a first request that has this in its line of the log
  only=TEXT        faults only for paths that have this in them, and not for the first byte alone, by which
                   sizes and versions are asked for
"""
import argparse
import email.utils
import json
import os
import random
import socket
import socketserver
import ssl
import sys
import threading
import time
import urllib.parse

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("portfile")
parser.add_argument("--port", type=int, default=0)
parser.add_argument("--log")
parser.add_argument("--faults")
parser.add_argument("--delay", type=float, default=0)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--no-etag", action="store_true")
parser.add_argument("--no-modified", action="store_true")
parser.add_argument("--strip", default="", help="this prefix of paths is left out (a bucket)")
parser.add_argument("--tls", help="certificate and key")
options = parser.parse_args()

draws = random.Random(options.seed)
lock = threading.Lock()
waiting = {"seen": False}  # for `after`
role = {"nr": 0, "uses": 0}  # the keys given out, and the requests with the last ones
log = open(options.log, "a", buffering=1) if options.log else None


def faults():
    found = {}
    if options.faults and os.path.exists(options.faults):
        for line in open(options.faults):
            name, _, value = line.strip().partition("=")
            if name:  # a later line counts
                found[name] = value
    return found


def faults_of(wrong, path, fields):
    return {} if "only" in wrong and (wrong["only"] not in path or fields.get("range") == "bytes=0-0") else wrong


def drawn(share):
    with lock:
        return float(share) > 0 and draws.random() < float(share)


REFUSAL = '<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>%s</Message></Error>'


STS = """<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
 <AssumeRoleWithWebIdentityResult><Credentials><SessionToken>token/%d+==</SessionToken>
  <SecretAccessKey>secret</SecretAccessKey><Expiration>2100-01-01T00:00:00Z</Expiration>
  <AccessKeyId>ROLE%d</AccessKeyId></Credentials></AssumeRoleWithWebIdentityResult>
</AssumeRoleWithWebIdentityResponse>"""


def new_keys():
    with lock:
        role["nr"] += 1
        role["uses"] = 0
        return role["nr"]


class Handler(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def answer(self, status, fields, body=b""):
        head = "HTTP/1.1 %d X\r\n" % status
        fields.setdefault("Content-Length", str(len(body)))
        head += "".join("%s: %s\r\n" % field for field in fields.items())
        self.wfile.write(head.encode() + b"\r\n" + body)

    def refuse(self, status, code, message="on purpose"):
        self.answer(status, {"Content-Type": "application/xml"}, (REFUSAL % (code, message)).encode())

    def handle(self):
        try:
            while self.serve_one():
                pass
        except (ConnectionError, BrokenPipeError, TimeoutError, ssl.SSLError):
            pass

    def give_keys(self, form, wrong):
        """As STS."""
        form = urllib.parse.parse_qs(form)
        asked = [form.get(name, ["-"])[0] for name in ("Action", "RoleArn", "RoleSessionName", "WebIdentityToken")]
        if log:
            log.write("STS %s\n" % " ".join(asked))
        if "sts" in wrong:
            self.refuse(400, wrong["sts"])
        else:
            nr = new_keys()
            self.answer(200, {"Content-Type": "text/xml"}, (STS % (nr, nr)).encode())
        return True

    def give_container_keys(self, fields):
        if fields.get("authorization") != "pod":
            self.refuse(401, "NoToken")
            return True
        nr = new_keys()
        keys = {"AccessKeyId": "ROLE%d" % nr, "SecretAccessKey": "secret", "Token": "token/%d+==" % nr,
                "Expiration": "2100-01-01T00:00:00Z"}
        self.answer(200, {"Content-Type": "application/json"}, json.dumps(keys).encode())
        return True

    def has_keys(self, fields, uses):
        """Whether the request has the last keys that were given out, and these are still good."""
        with lock:
            role["uses"] += 1
            return "Credential=ROLE%d/" % role["nr"] in fields.get("authorization", "") and \
                fields.get("x-amz-security-token") == "token/%d+==" % role["nr"] and role["uses"] <= uses

    def comes_after(self, text, request):
        """Whether a request with this text came before, under faults that wait for it."""
        with lock:
            before = waiting["seen"]
            if not text:
                waiting["seen"] = False
            elif text in request:
                waiting["seen"] = True
            return before

    def serve_one(self):
        line = self.rfile.readline(65537).decode("latin1").split()
        if len(line) < 2:
            return False
        fields = {}
        while True:
            field = self.rfile.readline(65537).decode("latin1").strip()
            if not field:
                break
            name, _, value = field.partition(":")
            fields[name.strip().lower()] = value.strip()
        path = line[1].split("?")[0]
        if path.startswith("http://"):  # as a proxy
            path = "/" + path.split("/", 3)[3]
            fields["proxied"] = "yes"
        if options.strip and path.startswith(options.strip):
            path = path[len(options.strip):]
        proxied = " proxied" if "proxied" in fields else ""
        request = "%s %s %s%s" % (line[0], path, fields.get("range", "-"), proxied)
        if log:
            log.write(request + "\n")
        wrong = faults()
        if line[0] == "POST":
            return self.give_keys(self.rfile.read(int(fields.get("content-length", 0))).decode(), wrong)
        if path == "/keys":
            return self.give_container_keys(fields)
        if "keys" in wrong and not self.has_keys(fields, int(wrong["keys"])):
            self.refuse(403, "ExpiredToken", "The provided token has expired.")
            return True
        if not self.comes_after(wrong.get("after"), request) and "after" in wrong:
            wrong = {}
        wrong = faults_of(wrong, path, fields)
        if options.delay:
            time.sleep(options.delay / 1000)
        while wrong.get("hang"):
            time.sleep(0.05)
            wrong = faults_of(faults(), path, fields)
        if drawn(wrong.get("slow", 0)):
            time.sleep(float(wrong.get("slow_s", 2)))
        if wrong.get("status"):
            self.refuse(int(wrong["status"]), wrong.get("code", "SlowDown"))
            return True
        if drawn(wrong.get("error", 0)):
            self.refuse(503, "SlowDown", "Please reduce your request rate.")
            return True
        return self.send_file(path, fields, wrong)

    def send_file(self, path, fields, wrong):
        name = os.path.join(options.folder, path.lstrip("/"))
        if not os.path.isfile(name):
            self.refuse(404, "NoSuchKey", "The specified key does not exist.")
            return True
        with open(name, "rb") as file:
            stat = os.fstat(file.fileno())
            size = stat.st_size
            etag = wrong.get("etag") or '"%x-%x"' % (size, stat.st_mtime_ns)
            own = {"Accept-Ranges": "bytes"}
            if not options.no_modified:
                own["Last-Modified"] = email.utils.formatdate(stat.st_mtime, usegmt=True)
            if not options.no_etag:
                own["ETag"] = etag
            if "if-match" in fields and not options.no_etag and not wrong.get("etag") and fields["if-match"] != etag:
                self.refuse(412, "PreconditionFailed")
                return True
            if wrong.get("whole") or not fields.get("range", "").startswith("bytes="):
                self.answer(200, own, file.read())
                return True
            first, _, last = fields["range"][6:].partition("-")
            first, last = int(first), min(int(last), size - 1)
            if first > last:
                self.answer(416, {"Content-Range": "bytes */%d" % size})
                return True
            file.seek(first)
            body = file.read(last - first + 1)
        shift = 1 if wrong.get("other_range") else 0
        own["Content-Range"] = "bytes %d-%d/%d" % (first + shift, last + shift, size)
        own["Content-Length"] = str(len(body))
        if drawn(wrong.get("reset", 0)):
            self.answer(206, own, body[:len(body) // 2])
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            self.connection.close()
            return False
        if drawn(wrong.get("short", 0)):
            self.answer(206, own, body[:len(body) // 2])
            return False
        self.answer(206, own, body)
        return True


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 256


server = Server(("127.0.0.1", options.port), Handler)
if options.tls:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(options.tls)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
with open(options.portfile + ".new", "w") as out:
    print(server.server_address[1], file=out)
os.rename(options.portfile + ".new", options.portfile)
sys.stdout.flush()
server.serve_forever()
