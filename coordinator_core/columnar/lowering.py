"""Kernels to object code, with numba. Nothing imports this but what compiles."""

# Most of numba is not annotated.
# mypy: allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.codegen import AOTCPUCodegen
from numba.core.compiler import Flags, compile_extra
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import lower_builtin, register_jitable, type_callable

from coordinator_core.columnar import intrinsics, objects
from coordinator_core.columnar import types as declared
from coordinator_core.columnar.compiling import take_helpers

_WORD, _INT, _BYTE = ir.IntType(64), ir.IntType(32), ir.IntType(8)
_POINTER = _BYTE.as_pointer()


class _HostCodegen(AOTCPUCodegen):
    """Code for exactly this processor: of one in a virtual machine the name says more than it has."""

    def __init__(self) -> None:
        self._host_name, self._host_features = objects.host()
        super().__init__("regroup")

    def _customize_tm_options(self, options: dict[str, Any]) -> None:
        super()._customize_tm_options(options)
        options["cpu"] = self._host_name

    def _customize_tm_features(self) -> str:
        return self._host_features


def register_helpers() -> None:
    """Let numba compile what was declared with ``compiling.inlined`` and ``compiling.called``."""
    for function, inlined in take_helpers():
        register_jitable(forceinline=inlined)(function)


def object_code(function: Callable[..., Any], signature: declared.Signature) -> bytes:
    """Object code with the function :data:`objects.ENTRY`, which calls ``function``.

    Nothing checks bounds, looks at exceptions or counts references: kernels allocate nothing.
    """
    register_helpers()
    flags: Any = Flags()
    flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    flags.error_model = "numpy"
    parameters = [_numba_type(parameter) for parameter in signature.parameters]
    with global_compiler_lock:
        context = cpu_target.target_context.subtarget(_internal_codegen=_HostCodegen(), aot_mode=True)
        compiled = compile_extra(
            cpu_target.typing_context, context, function, parameters, _numba_type(signature.result), flags, {}
        )
        library = context.codegen().create_library(objects.ENTRY)
        library.add_linking_library(compiled.library)
        library.add_ir_module(_entry_module(context, library, compiled.fndesc, parameters))
        code: bytes = library.emit_native_object()
    return code


def _entry_module(context: Any, library: Any, fndesc: Any, parameters: list[Any]) -> ir.Module:
    """A module with the entry: it takes the words apart into the arguments of the function."""
    module = library.create_ir_module(objects.ENTRY)
    entry = ir.Function(module, ir.FunctionType(_WORD, [_WORD.as_pointer()]), objects.ENTRY)
    builder = ir.IRBuilder(entry.append_basic_block())
    words = (builder.load(builder.gep(entry.args[0], [ir.Constant(_WORD, at)])) for at in itertools.count())
    function = context.declare_function(module, fndesc)
    kinds = fndesc.restype, fndesc.argtypes
    with context.push_code_library(library):
        arguments = [_argument(context, builder, kind, words) for kind in parameters]
        _, result = context.call_conv.call_function(builder, function, *kinds, arguments)
        if fndesc.restype == types.none:
            builder.ret(ir.Constant(_WORD, 0))
        else:
            builder.ret(context.cast(builder, result, fndesc.restype, types.int64))
    return module


def _argument(context: Any, builder: Any, kind: Any, words: Any) -> Any:
    if isinstance(kind, types.NamedTuple):
        return context.make_tuple(
            builder, kind, [_argument(context, builder, field, words) for field in kind.types]
        )
    if not isinstance(kind, types.Array):
        return context.cast(builder, next(words), types.int64, kind)
    element = context.get_data_type(kind.dtype)
    size = context.get_constant(types.intp, context.get_abi_sizeof(element))
    data = builder.inttoptr(next(words), element.as_pointer())
    shape = [next(words) for _ in range(kind.ndim)]
    strides = [size]
    for extent in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], extent))
    array = context.make_array(kind)(context, builder)
    context.populate_array(array, data=data, shape=shape, strides=strides, itemsize=size, meminfo=None)
    return array._getvalue()


def _numba_type(kind: Any) -> Any:
    if isinstance(kind, declared.NamedTuple):
        return types.NamedTuple([_numba_type(field) for field in kind.fields], kind.instance_class)
    if isinstance(kind, declared.Array):
        return types.Array(_numba_type(kind.dtype), kind.ndim, "C", readonly=kind.readonly)
    return getattr(numba.types, kind.name)


def _lower_load(function: Any, bits: int, result: Any) -> None:
    """Have ``function(bytes, position)`` be a load of ``bits``, big-endian where the result is signed."""

    @type_callable(function)
    def type_load(context: Any) -> Any:
        return lambda array, position: signature(result, array, types.int64)

    @lower_builtin(function, types.Array, types.Integer)
    def load(context: Any, builder: Any, called: Any, arguments: Any) -> Any:
        array = context.make_array(called.args[0])(context, builder, arguments[0])
        pointer = builder.gep(array.data, [arguments[1]])
        value = builder.load(builder.bitcast(pointer, ir.IntType(bits).as_pointer()))
        value.align = 1
        if not result.signed:
            return value
        swapped = builder.bswap(value)
        return swapped if bits == 64 else builder.sext(swapped, _WORD)


_lower_load(intrinsics.le64, 64, types.uint64)
_lower_load(intrinsics.be64, 64, types.int64)
_lower_load(intrinsics.be32, 32, types.int64)
_lower_load(intrinsics.be16, 16, types.int64)


def _lower_instruction(function: Any, name: str, result: Any, operand: Any) -> None:
    """Have ``function(number, number)`` be the instruction that LLVM calls ``name``."""

    @type_callable(function)
    def type_instruction(context: Any) -> Any:
        return lambda first, second: signature(result, result, operand)

    @lower_builtin(function, types.Integer, types.Integer)
    def call(context: Any, builder: Any, called: Any, arguments: Any) -> Any:
        kinds = [context.get_value_type(kind) for kind in (result, result, operand)]
        return _call(builder, name, kinds[0], kinds[1:], arguments)


_lower_instruction(intrinsics.crc32_8_bytes, "llvm.x86.sse42.crc32.64.64", types.uint64, types.uint64)
_lower_instruction(intrinsics.crc32_1_byte, "llvm.x86.sse42.crc32.32.8", types.uint32, types.uint8)


@type_callable(intrinsics.put64)
def _type_put64(context: Any) -> Any:
    return lambda array, position, word: signature(types.none, array, types.int64, types.uint64)


@lower_builtin(intrinsics.put64, types.Array, types.Integer, types.Integer)
def _put64(context: Any, builder: Any, called: Any, arguments: Any) -> Any:
    array = context.make_array(called.args[0])(context, builder, arguments[0])
    pointer = builder.gep(array.data, [arguments[1]])
    stored = builder.store(arguments[2], builder.bitcast(pointer, _WORD.as_pointer()))
    stored.align = 1
    return context.get_dummy_value()


@type_callable(intrinsics.prefetch)
def _type_prefetch(context: Any) -> Any:
    return lambda array, position: signature(types.none, array, types.int64)


@lower_builtin(intrinsics.prefetch, types.Array, types.Integer)
def _prefetch(context: Any, builder: Any, called: Any, arguments: Any) -> Any:
    array = context.make_array(called.args[0])(context, builder, arguments[0])
    pointer = builder.bitcast(builder.gep(array.data, [arguments[1]]), _BYTE.as_pointer())
    word = ir.IntType(32)
    # For reading, to be kept in all levels, data.
    hints = [ir.Constant(word, 0), ir.Constant(word, 3), ir.Constant(word, 1)]
    parameters = [_BYTE.as_pointer(), word, word, word]
    _call(builder, "llvm.prefetch.p0", ir.VoidType(), parameters, [pointer, *hints])
    return context.get_dummy_value()


@type_callable(intrinsics.address_of)
def _type_address_of(context: Any) -> Any:
    return lambda array, position: signature(types.int64, array, types.int64)


@lower_builtin(intrinsics.address_of, types.Array, types.Integer)
def _address_of(context: Any, builder: Any, called: Any, arguments: Any) -> Any:
    array = context.make_array(called.args[0])(context, builder, arguments[0])
    return builder.ptrtoint(builder.gep(array.data, [arguments[1]]), _WORD)


def _lower_c_function(function: Any, result: ir.Type, *parameters: ir.Type) -> None:
    """Have ``function(address, *numbers)`` call the C function at ``address``; its result as int64."""
    numbers = [types.int64] * (1 + len(parameters))
    cases = {"key": function, "cases": [signature(types.int64, *numbers)]}
    infer_global(function, types.Function(type(function.__name__, (ConcreteTemplate,), cases)))

    @lower_builtin(function, *numbers)
    def call(context: Any, builder: Any, called: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(result, parameters)
        c_function = builder.inttoptr(arguments[0], kind.as_pointer())
        given = [
            builder.inttoptr(number, parameter) if parameter == _POINTER else builder.trunc(number, parameter)
            for number, parameter in zip(arguments[1:], parameters, strict=True)
        ]
        return builder.sext(builder.call(c_function, given), _WORD)


_lower_c_function(intrinsics.lz4_decompress_safe, _INT, _POINTER, _POINTER, _INT, _INT)
_lower_c_function(intrinsics.zstd_frame_size, _WORD, _POINTER, _WORD)
_lower_c_function(intrinsics.zstd_decompress, _WORD, _POINTER, _POINTER, _WORD, _POINTER, _WORD)


def _call(builder: Any, name: str, result: Any, parameters: list[Any], arguments: Any) -> Any:
    kind = ir.FunctionType(result, parameters)
    function = cgutils.get_or_insert_function(builder.module, kind, name)
    return builder.call(function, arguments)
