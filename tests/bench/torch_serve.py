"""ResNet-18 of torchvision behind Python's http.server: a thread for each connection, a picture at a time."""
import http.server
import io
import json

import torch
import torchvision
from PIL import Image
from torchvision.transforms import v2

net = torchvision.models.resnet18(num_classes=500).eval().to(memory_format=torch.channels_last)
chain = v2.Compose([v2.Resize(256), v2.CenterCrop(224), v2.ToImage(), v2.ToDtype(torch.float32, scale=True),
                    v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # header and body are two writes

    def do_POST(self):
        picture = Image.open(io.BytesIO(self.rfile.read(int(self.headers["Content-Length"])))).convert("RGB")
        with torch.inference_mode():
            odds = net(chain(picture)[None].to(memory_format=torch.channels_last))[0].softmax(0)
        top = odds.topk(5)
        text = json.dumps([[int(i), float(p)] for i, p in zip(top.indices, top.values)]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128  # listen backlog: more than the clients, which connect at once


server = Server(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
