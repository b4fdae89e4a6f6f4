# SPDX-License-Identifier: Apache-2.0
"""Exceptions. Each says where it happened, in one sentence and in attributes."""

from __future__ import annotations

import errno


class Error(RuntimeError):
    """Any failure of feedline.

    code: negative errno; stage: "plan", "read", ...; sample, position: numbers or None;
    container, key: text or None; offset: byte in the container or None.
    """

    code: int = 0
    stage: str | None = None
    sample: int | None = None
    position: int | None = None
    offset: int | None = None
    container: str | None = None
    key: str | None = None


class OptionError(Error, ValueError):
    """A setting or an argument is wrong; the text names it."""


class BadDataError(Error):
    """A sample, a container or an index is damaged."""


class NotFoundError(Error, FileNotFoundError):
    """A file, folder, field or class is missing."""


class StaleIndexError(Error):
    """The index does not fit the containers beside it."""


class LimitError(Error):
    """A limit was reached; the text has the value and the option to change."""


class MemoryLimitError(Error, MemoryError):
    """Memory could not be had, or memory_limit is too small."""


class SlotsHeldError(Error):
    """Every batch is held by the caller: drop one, or raise host_slots or device_slots."""


class StallError(Error, TimeoutError):
    """No progress within stall_timeout."""


class DeviceError(Error):
    """The device or its driver is not there."""


class ProcessError(Error):
    """The object was opened by another process: a forked child has to open its own."""


_KINDS: dict[int, type[Error]] = {
    errno.EINVAL: OptionError,
    errno.EBADMSG: BadDataError,
    errno.ENOENT: NotFoundError,
    errno.ESTALE: StaleIndexError,
    errno.E2BIG: LimitError,
    errno.ENOMEM: MemoryLimitError,
    errno.EBUSY: SlotsHeldError,
    errno.ETIMEDOUT: StallError,
    errno.ENODEV: DeviceError,
    errno.ECHILD: ProcessError,
}


def make(code: int, stage: str, message: str, key: str, sample: int, position: int, container: str,
         offset: int | None) -> Error:
    """The exception for an error of the C library."""
    error = _KINDS.get(-code, Error)(message)
    error.code = code
    error.stage = stage
    error.key = key or None
    error.sample = None if sample < 0 else sample
    error.position = None if position < 0 else position
    error.container = container or None
    error.offset = offset
    return error
