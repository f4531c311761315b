"""The structs of paramd's public C headers, as ctypes sees them.

ABI lists those whose layout the library tells (pd_client_abi), in its order. _library compares both when it loads the
library.
"""
from __future__ import annotations

import ctypes
from ctypes import POINTER, c_bool, c_char, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

MAX_RANK = 8
ERROR_TEXT = 512


class Error(ctypes.Structure):
    """pd_error: a code and one sentence."""
    _fields_ = [("code", c_int), ("text", c_char * ERROR_TEXT)]


class Shape(ctypes.Structure):
    """pd_shape: the dimensions of a tensor."""
    _fields_ = [("rank", c_int), ("dim", c_int64 * MAX_RANK)]


class Options(ctypes.Structure):
    """pd_client_options: what a handle is opened with."""
    _fields_ = [("urls", c_char_p), ("job", c_char_p), ("rank", c_int), ("world_size", c_int),
                ("options", POINTER(c_char_p)), ("rules", POINTER(c_char_p)), ("label", c_char_p),
                ("deadline", c_double), ("checksum", c_bool), ("impatient", c_bool), ("nonce", c_uint64),
                ("notice", c_void_p), ("notice_arg", c_void_p), ("quiet", c_bool), ("no_shared_memory", c_bool),
                ("join_later", c_bool), ("slice", c_double), ("window", c_uint32), ("token_file", c_char_p),
                ("ca_file", c_char_p), ("cert_file", c_char_p), ("key_file", c_char_p), ("run", c_char_p),
                ("resume", c_int), ("joins", c_bool), ("group", c_uint32), ("generation", c_uint64),
                ("shares", c_uint32), ("feedback", c_int), ("tcp_congestion", c_char_p)]


class Welcome(ctypes.Structure):
    """pd_welcome: the server's answer to a client that has connected."""
    _fields_ = [("seed", c_uint64), ("created", c_bool), ("rank", c_int), ("world_size", c_int),
                ("chunk_elements", c_uint64), ("max_payload", c_uint64), ("server", c_char * 64),
                ("blas_core", c_char * 32), ("step", c_uint64), ("linger", c_double), ("slots", c_int),
                ("epoch", c_uint64), ("generation", c_uint64)]


class Param(ctypes.Structure):
    """pd_client_param: the declaration of a parameter."""
    _fields_ = [("name", c_char_p), ("shape", Shape), ("push_dtype", c_int), ("pull_dtype", c_int),
                ("update_dtype", c_int), ("ranged", c_bool), ("start", c_int64), ("end", c_int64),
                ("axes", c_char_p), ("model_state", c_bool), ("fragment", c_uint32)]


class Item(ctypes.Structure):
    """pd_item: one parameter of a push or pull, and its results."""
    _fields_ = [("param", c_size_t), ("gradient", c_void_p), ("weights", c_void_p), ("outcome", c_int),
                ("step", c_uint64), ("version", c_uint64)]


class ItemCount(ctypes.Structure):
    """pd_item_count: more results of an item that was pushed."""
    _fields_ = [("age", c_uint32), ("counted", c_uint32)]


class Scalar(ctypes.Structure):
    """pd_scalar: a number beside the gradients."""
    _fields_ = [("name", c_char_p), ("value", c_double), ("mean", c_double), ("weight", c_double)]


class PushOptions(ctypes.Structure):
    """pd_push_options: weight, hyperparameters and scalars of a push."""
    _fields_ = [("weight", c_double), ("zero_weight", c_bool), ("presummed", c_bool), ("hypers", POINTER(c_char_p)),
                ("scalars", POINTER(Scalar)), ("n_scalars", c_size_t), ("sparse", c_bool),
                ("worker_state", c_void_p), ("worker_state_bytes", c_size_t), ("replaces", c_uint64),
                ("patience_ms", c_uint32), ("wants", c_uint32), ("carried", c_bool), ("counts", POINTER(ItemCount)),
                ("speed", c_double), ("again", c_bool), ("lost", POINTER(c_bool)), ("form", c_int)]


class Stats(ctypes.Structure):
    """pd_client_stats: what a client counts."""
    _fields_ = [("bytes_out", c_uint64), ("bytes_in", c_uint64), ("payload_out", c_uint64), ("payload_in", c_uint64),
                ("connects", c_uint64), ("resent", c_uint64), ("shared_out", c_uint64), ("shared_in", c_uint64),
                ("rewinds", c_uint64), ("replayed", c_uint64)]


class DilocoOptions(ctypes.Structure):
    """pd_diloco_options: how a worker syncs."""
    _fields_ = [("sync_every", c_uint64), ("fragment_sync_delay", c_uint64), ("fragment_update_alpha", c_double),
                ("drop_late", c_bool), ("dylu", c_bool), ("weigh_tokens", c_bool)]


class DilocoDue(ctypes.Structure):
    """pd_diloco_due: the fragment to send and the one to take; -1: none."""
    _fields_ = [("send", c_int64), ("take", c_int64)]


class DilocoStatus(ctypes.Structure):
    """pd_diloco_status: what a worker has done, and how it counts."""
    _fields_ = [("inner_steps", c_uint64), ("step", c_uint64), ("pushes", c_uint64), ("counted", c_uint64),
                ("late", c_uint64), ("age", c_uint64), ("sync_every", c_uint64), ("payload_out", c_uint64),
                ("payload_in", c_uint64), ("members", c_int), ("counted_ranks", c_uint32), ("speed", c_double)]


ABI: list[type[ctypes.Structure]] = [Error, Shape, Options, Welcome, Param, Item, Scalar, PushOptions, Stats,
                                     ItemCount, DilocoOptions, DilocoDue, DilocoStatus]


def layout(struct: type[ctypes.Structure]) -> tuple[int, list[int]]:
    """Returns the size of a struct, and the offsets of its fields, in bytes."""
    return ctypes.sizeof(struct), [getattr(struct, field[0]).offset for field in struct._fields_]
