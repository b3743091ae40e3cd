"""llama.cpp's own HTTP server, as the Python package `xllamacpp` brings it, with the arguments of `llama-server`."""

import argparse
import threading

import xllamacpp

parser = argparse.ArgumentParser(prog="llama-server", allow_abbrev=False)
parser.add_argument("--model", required=True)
parser.add_argument("--alias", required=True)
parser.add_argument("--ctx-size", type=int, required=True)
parser.add_argument("--host", required=True)
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--jinja", action="store_true")
given = parser.parse_args()

wanted = xllamacpp.CommonParams()
wanted.model.path = given.model
wanted.model_alias = {given.alias}
wanted.n_ctx = given.ctx_size
wanted.n_parallel = 1
wanted.hostnames = [given.host]
wanted.port = given.port
wanted.use_jinja = given.jinja
server = xllamacpp.Server(wanted)
print(f"listening on {server.listening_address}", flush=True)
threading.Event().wait()
