/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of FlDataset: a folder, its index, and how long they live. */
#ifndef FL_INDEX_DATASET_H
#define FL_INDEX_DATASET_H

#include <feedline/dataset.h>
#include <feedline/error.h>

#include "index/index.h"

/* One more owner; every fl_dataset_release() (and the user's fl_dataset_close()) ends one. Any
 * thread. */
FlDataset *fl_dataset_retain(FlDataset *ds);
void fl_dataset_release(FlDataset *ds);

/* Never NULL. */
const struct fl_index *fl_dataset_index(const FlDataset *ds);

/* Folder that container paths are relative to. */
const char *fl_dataset_root(const FlDataset *ds);

/* As the user gave it. */
const char *fl_dataset_path(const FlDataset *ds);

/* 0, or FL_ERR(EBADMSG) with a sentence: the folder is the unfinished output of the sharder. */
int fl_dataset_check_finished(const char *root);

/* Path with which a container can be opened. Returns its length, FL_ERR(E2BIG) if it does not fit;
 * any thread. */
int fl_dataset_container_path(const FlDataset *ds, uint32_t id, char *buf, size_t size);

/* Is the open file `fd` the container that was indexed? Its size must be the same; where the time
 * differs a hash of its header bytes decides. Whoever opens a container calls this once, before the
 * first byte is used; a few small reads at most. 0; FL_ERR(ESTALE) or FL_ERR(EIO) with *err filled.
 * Any thread. */
int fl_dataset_check_container(const FlDataset *ds, uint32_t id, int fd, FlError *err);

/* 0, or FL_ERR(ECHILD) with a sentence: this process is not the one that opened it. */
int fl_dataset_check_process(const FlDataset *ds);

#endif
