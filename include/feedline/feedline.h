/* SPDX-License-Identifier: Apache-2.0 */
/** Everything: data sets, loaders, the index and the sharder. C11 and C++17. */
#ifndef FEEDLINE_FEEDLINE_H
#define FEEDLINE_FEEDLINE_H

#include <feedline/batch.h>
#include <feedline/config.h>
#include <feedline/dataset.h>
#include <feedline/error.h>
#include <feedline/index.h>
#include <feedline/loader.h>
#include <feedline/log.h>
#include <feedline/shard.h>
#include <feedline/stats.h>
#include <feedline/types.h>
#include <feedline/version.h>

#endif
