/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include <feedline/error.h>
#include "t.h"

static char dir[] = "/tmp/feedline-file-XXXXXX";

static void test_join(void)
{
    static const struct {
        const char *dir, *name, *path;
    } cases[] = { { "a", "b", "a/b" }, { "a/", "b", "a/b" }, { "", "b", "b" }, { "/", "b", "/b" } };

    for (size_t i = 0; i < T_LEN(cases); i++) {
        t_case(cases[i].path);
        char *path = fl_path_join(cases[i].dir, cases[i].name);
        T_STR(path, cases[i].path);
        free(path);
    }
}

static void test_replace(void)
{
    void *data;
    size_t len;
    char *path = fl_path_join(dir, "x");

    t_case("replace and read back");
    T_EQ(fl_file_replace(dir, "x", "one", 3), 0);
    T_EQ(fl_file_replace(dir, "x", "second", 6), 0);
    T_EQ(fl_file_read(path, 100, &data, &len), 0);
    T_EQ(len, 6);
    T_STR(data, "second");
    free(data);

    t_case("errors name the file");
    T_EQ(fl_file_read(path, 5, &data, &len), FL_ERR(E2BIG));
    T_HAS(fl_last_error()->message, path);
    T_EQ(fl_file_read(dir, 5, &data, &len), FL_ERR(EIO));
    T_EQ(fl_file_read("/nonexistent/x", 5, &data, &len), FL_ERR(ENOENT));
    T_HAS(fl_last_error()->message, "/nonexistent/x");
    T_EQ(fl_file_replace("/nonexistent", "x", "", 0), FL_ERR(ENOENT));

    t_case("full disk");
    T_EQ(fl_err_file(ENOSPC, "write", path), FL_ERR(ENOSPC));
    T_HAS(fl_last_error()->message, "the disk is full");
    T_EQ(unlink(path), 0);
    free(path);
}

int main(void)
{
    if (!mkdtemp(dir))
        T_SKIP("no temporary folder");
    test_join();
    test_replace();
    t_case("nothing is left behind");
    T_EQ(rmdir(dir), 0);
    return t_done();
}
