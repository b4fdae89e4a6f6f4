/* SPDX-License-Identifier: Apache-2.0 */
/* Read before every file that clang-tidy looks at: tells its analyzer what it cannot see from one file,
 * that a failure's code comes back as it was given, and so is never 0. */
#include "base/err.h"

#define fl_err(code, ...) ((void)fl_err(code, __VA_ARGS__), (code))
#define fl_err_set(err, code, ...) ((void)fl_err_set(err, code, __VA_ARGS__), (code))
