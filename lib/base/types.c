/* SPDX-License-Identifier: Apache-2.0 */
#include <feedline/types.h>

static const struct {
    size_t bytes;
    const char *name;
} dtypes[] = {
    [FL_U8] = { 1, "uint8" },      [FL_I8] = { 1, "int8" },     [FL_I16] = { 2, "int16" },
    [FL_U16] = { 2, "uint16" },    [FL_I32] = { 4, "int32" },   [FL_U32] = { 4, "uint32" },
    [FL_I64] = { 8, "int64" },     [FL_U64] = { 8, "uint64" },  [FL_F16] = { 2, "float16" },
    [FL_BF16] = { 2, "bfloat16" }, [FL_F32] = { 4, "float32" }, [FL_F64] = { 8, "float64" },
};

size_t fl_dtype_bytes(FlDtype dtype)
{
    return (unsigned)dtype <= FL_F64 ? dtypes[dtype].bytes : 0;
}

const char *fl_dtype_name(FlDtype dtype)
{
    return (unsigned)dtype <= FL_F64 ? dtypes[dtype].name : "?";
}
