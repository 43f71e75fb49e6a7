#!/usr/bin/env python3
"""serve.py FOLDER [PORT]: serves a folder to browsers on this machine, isolated from other pages (COOP and COEP), as pages
whose modules have workers need it."""
import functools
import http.server
import sys


class Handler(http.server.SimpleHTTPRequestHandler):
    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, ".wasm": "application/wasm"}

    def end_headers(self):
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: serve.py FOLDER [PORT]")
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 8000
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), functools.partial(Handler, directory=sys.argv[1])) as server:
        print(f"http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()
