"""Serves a model over HTTP, in threads, and calls it."""

import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        with torch.inference_mode():
            answer = model(torch.full((1, 8), float(self.path[1:]))).item().hex().encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
    threading.Thread(target=server.serve_forever).start()
    for number in range(5):
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/{number}") as response:
            print(response.read().decode())
    server.shutdown()
