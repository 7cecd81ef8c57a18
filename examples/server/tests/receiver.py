"""Receives webhooks, checks their signatures as Standard Webhooks describes them, and writes a line for each to a file.

Arguments: the secret (whsec_...), the file, and how many of the first attempts at every third delivery are refused. Prints the
port that it listens on.
"""

import base64
import hashlib
import hmac
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = base64.b64decode(sys.argv[1].removeprefix("whsec_"))
LOG = open(sys.argv[2], "a", buffering=1)
REFUSED = int(sys.argv[3])
attempts = {}


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        delivery, timestamp = self.headers["webhook-id"], self.headers["webhook-timestamp"]
        signed = b".".join([delivery.encode(), timestamp.encode(), body])
        code = base64.b64encode(hmac.new(SECRET, signed, hashlib.sha256).digest()).decode()
        signatures = self.headers["webhook-signature"].split(" ")
        valid = any(hmac.compare_digest(signature, f"v1,{code}") for signature in signatures)
        fresh = abs(time.time() - int(timestamp)) < 300
        attempts[delivery] = attempts.get(delivery, 0) + 1
        refuse = int(delivery, 16) % 3 == 0 and attempts[delivery] <= REFUSED
        event = json.loads(body)
        taken = "refused" if refuse else "taken"
        verdict = "genuine" if valid and fresh else "forged"
        artifact = event["artifact"]["fingerprint"] if event["artifact"] else "-"
        LOG.write(f"{delivery} {taken} {verdict} {event['event_type']} {artifact}\n")
        self.send_response(500 if refuse else 200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
print(server.server_port, flush=True)
server.serve_forever()
