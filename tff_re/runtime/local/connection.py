"""Channels to the worker, and a check that it answers.

Imports gRPC, but neither TensorFlow nor TFF.
"""

from __future__ import annotations

import time

import grpc

_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),  # a web proxy set in the environment passes no gRPC
    ("grpc.use_local_subchannel_pool", 1),  # a new channel makes a new connection
]
# With an empty message it frees nothing. Written out here because TFF's own messages would import TensorFlow.
_NOTHING_TO_DO = "/tensorflow_federated.v0.ExecutorGroup/Dispose"
_PAUSE_SECONDS = 0.1
_SILENCE = "no answer"


def why_no_answer(channel: grpc.Channel, seconds: float) -> str | None:
    """Return None if a worker answers a question within `seconds`, else what happened instead."""
    try:
        channel.unary_unary(_NOTHING_TO_DO)(b"", timeout=seconds)
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return "a program that is not a TensorFlow Federated worker listens there"
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return _SILENCE
        if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
            return " ".join((error.details() or error.code().name).split())
        # Any other error comes from a worker: it misses the name of an executor.
    return None


def connect(address: str, seconds: float) -> grpc.Channel | str:
    """Return a channel to a worker that answers within `seconds`, else what happened instead.

    Every attempt is a channel of its own: one that could not connect waits for up to 20 s before it tries again.
    """
    deadline, answer = time.monotonic() + seconds, _SILENCE
    while True:
        channel = grpc.insecure_channel(address, _OPTIONS)
        try:
            reason = why_no_answer(channel, max(deadline - time.monotonic(), 0.01))
        except BaseException:
            channel.close()
            raise
        if reason is None:
            return channel
        channel.close()
        answer = answer if reason == _SILENCE else reason
        if time.monotonic() + _PAUSE_SECONDS > deadline:
            return answer
        time.sleep(_PAUSE_SECONDS)
