"""Channels to workers, and whether a worker answers. Imports gRPC, but neither TensorFlow nor TFF."""

from __future__ import annotations

import time

import grpc

from tff_re.runtime.tls import Tls

_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),  # a web proxy set in the environment passes no gRPC
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),  # a channel shares no connection with another one's credentials
]
# Frees nothing, so that it does nothing; written out here because TFF's own messages come with all of TensorFlow.
_NOTHING_TO_DO = "/tensorflow_federated.v0.ExecutorGroup/Dispose"
_NO_ANSWER = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


def open_channel(address: str, tls: Tls | None) -> grpc.Channel:
    """A channel to `HOST:PORT`; nothing is sent yet.

    Raises:
      RuntimeProblem: a file of `tls` cannot be read.
    """
    if tls is None:
        return grpc.insecure_channel(address, _OPTIONS)
    files = tls.contents()
    credentials = grpc.ssl_channel_credentials(files["ca"], files["key"], files["cert"])
    return grpc.secure_channel(address, credentials, _OPTIONS)


def why_no_answer(channel: grpc.Channel, seconds: float) -> str | None:
    """None if a worker answers within so many seconds, else what happened instead."""
    call = channel.unary_unary(_NOTHING_TO_DO)
    deadline, reason = time.monotonic() + seconds, "no answer"
    while (left := deadline - time.monotonic()) > 0:
        try:
            call(b"", timeout=left)
            return None
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return "what listens there is no worker of TensorFlow Federated"
            if error.code() not in _NO_ANSWER:
                return None  # it does not know the executor that we did not name: it is there
            if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                reason = " ".join((error.details() or "").split()) or reason
        time.sleep(min(0.1, max(left, 0)))
    return reason


def check_worker(address: str, tls: Tls | None, seconds: float) -> str | None:
    """`why_no_answer` of a channel of its own."""
    channel = open_channel(address, tls)
    try:
        return why_no_answer(channel, seconds)
    finally:
        channel.close()
