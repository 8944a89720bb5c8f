#!/usr/bin/env python3
"""Writes sigv4.txt: requests as botocore sends and signs them, for tests/unit/test_sigv4.c.

sigv4.py >sigv4.txt      needs botocore; the same botocore or a later one writes the same file

A case is the lines `name value` up to an empty one. `url` is the object as a config names it (with it go
`endpoint`, empty for AWS itself, and `region`); a case without it signs `path` and `query` as they stand.
"""
import datetime
import random
import sys

import botocore.auth
import botocore.awsrequest
import botocore.credentials
import botocore.session
from botocore.config import Config

draws = random.Random(4)
NOW = [None]
real = datetime.datetime


class Clock(datetime.datetime):
    @classmethod
    def utcnow(cls):
        return NOW[0].replace(tzinfo=None)

    @classmethod
    def now(cls, tz=None):
        return NOW[0] if tz else NOW[0].replace(tzinfo=None)


botocore.auth.datetime = type("datetime", (), {"datetime": Clock, "timezone": datetime.timezone})
if hasattr(botocore.auth, "get_current_datetime"):
    botocore.auth.get_current_datetime = lambda remove_tzinfo=True: Clock.utcnow()

LETTERS = "abcXYZ019-_.~ +%&=@,;:!*'()$#?[]äß€漢😀"
OWN = ("host", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token")


def text(low, high, letters=LETTERS):
    return "".join(draws.choice(letters) for _ in range(draws.randint(low, high)))


def keys():
    token = text(1, 300, "abcXYZ019+/=") if draws.random() < 0.5 else None
    return botocore.credentials.Credentials(text(16, 20, "ABCXYZ019"), text(40, 40, "abcXYZ019+/"), token)


def show(request, credentials, region, more):
    signed = request.headers["Authorization"]
    signed = (signed.decode() if isinstance(signed, bytes) else signed).split("SignedHeaders=")[1].split(",")[0]
    lines = dict(more)
    lines.update(id=credentials.access_key, secret=credentials.secret_key, token=credentials.token or "",
                 region=region, time=int(NOW[0].timestamp()), method=request.method,
                 hash=request.headers["X-Amz-Content-SHA256"])
    for name, value in lines.items():
        print(name, value.decode() if isinstance(value, bytes) else value)
    for name in sorted(request.headers.keys()):
        value = request.headers[name]
        if name.lower() in signed.split(";") and name.lower() not in OWN:
            print("field", "%s:%s" % (name, value.decode() if isinstance(value, bytes) else value))
    value = request.headers["Authorization"]
    print("authorization", value.decode() if isinstance(value, bytes) else value)
    print()


def new_time():
    NOW[0] = real.fromtimestamp(draws.randint(1400000000, 2000000000), datetime.timezone.utc)


def by_client():
    credentials, region = keys(), draws.choice(["us-east-1", "eu-central-1", "cn-north-1", "ap-southeast-2"])
    endpoint = draws.choice([None, None, "http://127.0.0.1:9000", "https://s3.example.org", "http://minio:80"])
    dots = draws.random() < 0.2
    bucket = "data-%d%s" % (draws.randint(0, 999), ".photos" if dots else "")
    key = text(1, 40) + draws.choice(["", "/" + text(1, 20)]) + ".tar"
    style = "path" if endpoint or dots else "virtual"
    session = botocore.session.Session()
    session.set_credentials(credentials.access_key, credentials.secret_key, credentials.token)
    client = session.create_client("s3", region_name=region, endpoint_url=endpoint, config=Config(
        s3={"addressing_style": style, "us_east_1_regional_endpoint": "regional"}, retries={"max_attempts": 0},
        response_checksum_validation="when_required", request_checksum_calculation="when_required"))
    seen = []

    def send(request, **_):
        seen.append(request)
        answer = botocore.awsrequest.AWSResponse(request.url, 200, {}, None)
        answer._content = b""
        return answer

    client.meta.events.register("before-send.s3.GetObject", send)
    first = draws.randint(0, 1 << 40)
    wanted = {"Range": "bytes=%d-%d" % (first, first + draws.randint(0, 1 << 20))}
    if draws.random() < 0.8:
        wanted["IfMatch"] = '"%s"' % text(32, 32, "0123456789abcdef")
    client.get_object(Bucket=bucket, Key=key, **wanted)
    show(seen[0], credentials, region,
         [("url", "s3://%s/%s" % (bucket, key)), ("endpoint", endpoint or ""), ("wire", seen[0].url)])


def by_signer():
    credentials, region = keys(), "eu-west-3"
    quote = botocore.compat.quote
    path = "/bucket/" + quote(text(1, 30), safe="/-._~")
    query = "&".join("%s=%s" % (quote(text(1, 6, "abAB-_ 9ä"), safe="-._~"), quote(text(0, 8), safe="-._~"))
                     for _ in range(draws.randint(0, 6)))
    headers = {}
    for _ in range(draws.randint(0, 5)):
        headers["X-" + text(1, 8, "abcXYZ-")] = draws.choice(["", " ", "  "]).join(
            text(1, 5, "abc019+/=;,\"") for _ in range(draws.randint(1, 4)))
    request = botocore.awsrequest.AWSRequest(
        method=draws.choice(["GET", "HEAD", "PUT", "DELETE"]),
        url="https://storage.example.org:8443" + path + ("?" + query if query else ""), headers=headers)
    botocore.auth.S3SigV4Auth(credentials, "s3", region).add_auth(request)
    show(request, credentials, region, [("host", "storage.example.org:8443"), ("path", path), ("query", query)])


for _ in range(130):
    new_time()
    by_client()
for _ in range(70):
    new_time()
    by_signer()
sys.stdout.flush()
