# SPDX-License-Identifier: Apache-2.0
"""Tensors by the letter of DLPack: what the capsules hold, who frees them, what may be written to."""
import ctypes
import gc
import threading

import pytest

import feedline as fl

np = pytest.importorskip("numpy")


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Plain(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("ctx", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", DLTensor)]


pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
rename = ctypes.pythonapi.PyCapsule_SetName
rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)  # called without the interpreter's lock
USED = ctypes.create_string_buffer(b"used_dltensor")


def take(capsule, name, kind):
    """As a consumer does: (address, structure), and the capsule no longer owns it."""
    address = pointer_of(capsule, name)
    rename(capsule, ctypes.cast(USED, ctypes.c_char_p))
    return address, kind.from_address(address)


@pytest.fixture
def two_slots(tar_set):
    with fl.Loader(fl.Dataset(tar_set), 4, host_slots=2, txt=fl.Bytes(), cls=fl.Label(),
                   jpg=fl.Image((10, 12), dtype="float32", layout="NHWC")) as loader:
        yield loader


def held(loader):
    """Whether the one slot beside those that the caller holds is all that is left."""
    other = loader.next()
    try:
        loader.next()
    except fl.SlotsHeldError:
        return True
    finally:
        del other
    return False


def test_versions(two_slots):
    b = two_slots.next()
    for version, name in ((None, "dltensor"), ((0, 8), "dltensor"), ((1, 0), "dltensor_versioned"),
                          ((1, 9), "dltensor_versioned"), ((2, 0), "dltensor_versioned")):
        assert f'"{name}"' in repr(b.jpg.__dlpack__(max_version=version))


def test_structures(two_slots):
    b = two_slots.next()
    capsule = b.jpg.__dlpack__(max_version=(1, 0))
    address, m = take(capsule, b"dltensor_versioned", Versioned)
    assert (m.major, m.flags) == (1, 0)
    t = m.tensor
    assert t.data == b.jpg.pointer and (t.device_type, t.device_id) == (1, 0) and t.byte_offset == 0
    assert (t.code, t.bits, t.lanes) == (2, 32, 1) and t.ndim == 4
    assert t.shape[:4] == [4, 10, 12, 3] and t.strides[:4] == [360, 36, 3, 1]
    DELETER(m.deleter)(address)
    address, m = take(b.cls.__dlpack__(), b"dltensor", Plain)
    assert (m.tensor.code, m.tensor.bits) == (0, 64) and m.tensor.shape[0] == 4 and m.tensor.strides[0] == 1
    DELETER(m.deleter)(address)
    assert take(b.ids.__dlpack__(max_version=(1, 0)), b"dltensor_versioned", Versioned)[1].flags == 1


@pytest.mark.parametrize("version, name, kind", [(None, b"dltensor", Plain),
                                                 ((1, 0), b"dltensor_versioned", Versioned)])
def test_deleter_in_any_thread(two_slots, version, name, kind):
    """The slot comes back when the last owner lets go, from a thread that Python does not know the work of."""
    b = two_slots.next()
    capsule = b.jpg.__dlpack__(max_version=version)
    address, m = take(capsule, name, kind)
    del b, capsule
    gc.collect()
    assert held(two_slots)
    thread = threading.Thread(target=DELETER(m.deleter), args=(address,))
    thread.start()
    thread.join()
    assert not held(two_slots)


def test_capsule_nobody_took(two_slots):
    b = two_slots.next()
    capsules = [b.jpg.__dlpack__(max_version=v) for v in (None, (1, 0))]
    del b
    gc.collect()
    assert held(two_slots)
    del capsules
    gc.collect()
    assert not held(two_slots)


@pytest.mark.parametrize("request_, error", [
    (dict(stream=1), BufferError), (dict(stream=0), BufferError), (dict(stream="one"), BufferError),
    (dict(copy=True), BufferError), (dict(dl_device=(2, 0)), BufferError), (dict(dl_device=(1, 1)), BufferError),
    (dict(dl_device=5), TypeError), (dict(max_version=(1,)), TypeError), (dict(nonsense=1), TypeError)])
def test_refused_requests_keep_nothing(two_slots, request_, error):
    b = two_slots.next()
    with pytest.raises(error):
        b.jpg.__dlpack__(**request_)
    with pytest.raises(TypeError):
        b.jpg.__dlpack__(None)  # stream is a keyword
    del b
    gc.collect()
    assert not held(two_slots)


def test_accepted_requests(two_slots):
    b = two_slots.next()
    for request in (dict(stream=None), dict(stream=-1), dict(copy=False), dict(dl_device=(1, 0))):
        b.jpg.__dlpack__(**request)
    assert b.jpg.__dlpack_device__() == (1, 0)


def test_read_only(two_slots):
    """What the loader says of a batch cannot be written to; its columns can."""
    b = two_slots.next()
    for note in (b.ids, b.valid, b.txt.offsets):
        assert note.read_only and memoryview(note).readonly
        assert not np.asarray(note).flags.writeable
        with pytest.raises(ValueError):
            np.asarray(note)[0] = 1
        if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
            assert not np.from_dlpack(note).flags.writeable
        # The older protocol cannot say it: its consumer writes to a copy.
        address, m = take(note.__dlpack__(), b"dltensor", Plain)
        assert m.tensor.data != note.pointer
        before = bytes(memoryview(note))
        assert ctypes.string_at(m.tensor.data, len(before)) == before
        ctypes.memset(m.tensor.data, 0xee, len(before))
        assert bytes(memoryview(note)) == before
        DELETER(m.deleter)(address)
    x = np.asarray(b.jpg)
    x[0] = 7
    assert not b.jpg.read_only and (np.from_dlpack(b.jpg)[0] == 7).all()


def test_bfloat16_and_half(tar_set):
    for dtype, code, bits in (("bfloat16", 4, 16), ("float16", 2, 16), ("uint8", 1, 8)):
        with fl.Loader(fl.Dataset(tar_set), 4, jpg=fl.Image(8, dtype=dtype)) as loader:
            b = loader.next()
            address, m = take(b.jpg.__dlpack__(max_version=(1, 0)), b"dltensor_versioned", Versioned)
            assert (m.tensor.code, m.tensor.bits) == (code, bits) and b.jpg.dtype == dtype
            DELETER(m.deleter)(address)


def test_held_batches_do_not_change(tar_set):
    """A batch is its owner's until the last view of it is gone, whatever the loader does meanwhile."""
    with fl.Loader(fl.Dataset(tar_set), 4, host_slots=6, workers=2, shuffle=True, seed=1,
                   jpg=fl.Image(16, dtype="uint8")) as loader:
        views, copies = [], []
        for _ in range(3):
            views.append(np.from_dlpack(loader.next().jpg))
            copies.append(views[-1].copy())
        for _ in range(3):
            for _ in loader:
                pass
        loader.close()
        del loader
        gc.collect()
        assert all((v == c).all() for v, c in zip(views, copies))
