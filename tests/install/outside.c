/* SPDX-License-Identifier: Apache-2.0 */
/* A program of somebody else's: compiled as C and as C++ against an installed feedline. */
#include <stdio.h>
#include <string.h>

#include <feedline/feedline.h>

int main(void)
{
    if (strcmp(fl_version(), FL_VERSION_STRING)) {
        printf("header %s, library %s\n", FL_VERSION_STRING, fl_version());
        return 1;
    }
    if (fl_dtype_bytes(FL_BF16) != 2 || strcmp(fl_dtype_name(FL_BF16), "bfloat16")) {
        printf("FL_BF16 is not what the library means by it\n");
        return 1;
    }
    FlDataset *ds = NULL;
    if (fl_dataset_open(&ds, "/nowhere/at/all", NULL) != FL_ERR(ENOENT) || ds != NULL ||
        !strstr(fl_last_error()->message, "/nowhere/at/all")) {
        printf("a folder that is not there: %s\n", fl_last_error()->message);
        return 1;
    }
    printf("feedline %s (%s)\n", fl_version(), fl_build_info());
    return 0;
}
