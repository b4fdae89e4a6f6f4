/* SPDX-License-Identifier: Apache-2.0 */
/* A folder that holds this file is being sharded, or was when its process was killed. Whoever opens a
 * dataset looks for it first and refuses the folder with FL_ERR(EBADMSG) and a sentence: "DIR is the unfinished
 * output of `feedline shard`; run the same command again to finish it". */
#ifndef FL_INDEX_UNFINISHED_H
#define FL_INDEX_UNFINISHED_H

#define FL_UNFINISHED_NAME ".feedline-unfinished"

#endif
