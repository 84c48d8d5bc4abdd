"""A package index on this machine, with one wheel, that counts and can interrupt."""

import threading
import zipfile
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def write_wheel(path, project, version, files):
    """Write a wheel that pip accepts, with `files` (name to bytes) inside."""
    module = project.replace("-", "_")
    metadata = f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n"
    tag = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(f"{module}/{name}", content)
        archive.writestr(f"{module}-{version}.dist-info/METADATA", metadata)
        archive.writestr(f"{module}-{version}.dist-info/WHEEL", tag)
        archive.writestr(f"{module}-{version}.dist-info/RECORD", "")


class WheelIndex:
    """Serves `content` as `filename`; `cut_at` ends that many next answers half-way."""

    def __init__(self, filename, content):
        self.filename = filename
        self.content = content
        self.ranges = []  # the Range header of every request for the file
        self.cuts = 0
        self.knows_ranges = True
        self.url = None

    @property
    def file_url(self):
        return f"{self.url}/files/{self.filename}"


@contextmanager
def serving(index):
    """Serve `index` on a free port; sets its `url`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path.startswith("/files/"):
                self._send_file()
            else:
                page = f'<a href="{index.file_url}">{index.filename}</a>'.encode()
                self._send(200, page, {"Content-Type": "text/html"})

        def _send_file(self):
            wanted = self.headers.get("Range")
            index.ranges.append(wanted)
            start = 0
            if wanted and index.knows_ranges:
                start = int(wanted.removeprefix("bytes=").partition("-")[0])
                if start >= len(index.content):
                    return self._send(416, b"", {})
            body = index.content[start:]
            headers = {"Content-Type": "application/octet-stream"}
            if index.cuts:
                index.cuts -= 1
                return self._send(206 if start else 200, body, headers, sent=len(body) // 2)
            return self._send(206 if start else 200, body, headers)

        def _send(self, status, body, headers, sent=None):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[:sent])

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    index.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
