/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels, containers and limits that refuse things. Each case runs in a child of its own, behind a seccomp filter that
 * answers chosen system calls with chosen errors, or under a resource limit; the bytes must be the same as ever. */
#define _GNU_SOURCE
#include "read_fixture.h"
#include "read_state.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define SYSCALL_SETUP 425
#define SYSCALL_ENTER 426
#define SYSCALL_REGISTER 427
#define SYSCALL_CACHESTAT 451

enum { ANY_ARG = -1 };

#ifdef FL_HAVE_URING
static const bool built_with_uring = true;
#else
static const bool built_with_uring = false;
#endif

/* Answer `nr` with errno `err`; arg >= 0: only where the low 32 bits of that argument, masked, equal `value`. */
struct refusal {
    long nr;
    int err;
    int arg;
    uint32_t mask, value;
    int arg2; // likewise, 0: no second condition
    uint32_t mask2, value2;
};

#define LOAD(off) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(off))
#define ARG(n) (offsetof(struct seccomp_data, args) + 8 * (size_t)(n))

static bool refuse(const struct refusal *list, unsigned n)
{
    struct sock_filter code[128];
    unsigned at = 0;

    for (unsigned i = 0; i < n; i++) {
        const struct refusal *r = &list[i];
        const unsigned conditions = (r->arg >= 0) + (r->arg2 > 0);
        const uint8_t skip = (uint8_t)(3 * conditions + 1);
        code[at++] = (struct sock_filter)LOAD(offsetof(struct seccomp_data, nr));
        code[at++] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)r->nr, 0, skip);
        for (unsigned c = 0; c < conditions; c++) {
            code[at++] = (struct sock_filter)LOAD(ARG(c ? r->arg2 : r->arg));
            code[at++] =
                (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, c ? r->mask2 : r->mask);
            code[at++] =
                (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, c ? r->value2 : r->value, 0,
                                             (uint8_t)(3 * (conditions - 1 - c) + 1));
        }
        code[at++] = (struct sock_filter)BPF_STMT(
            BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)(r->err & SECCOMP_RET_DATA));
    }
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const struct sock_fprog prog = { .len = (unsigned short)at, .filter = code };
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
           !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
}

/* Run body in a child. Its failures count here. */
static void in_child(const char *name, void (*body)(struct fx *), struct fx *fx)
{
    int status = -1;

    t_case(name);
    fflush(NULL);
    const pid_t child = fork();
    if (!child) {
        t_failures = t_checks = 0;
        body(fx);
        fflush(NULL);
        _exit(t_failures ? 1 : t_checks ? 0 : 77);
    }
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        printf("left out: %s\n", name);
    else
        T_EQ(status, 0);
}

/* What the log said. */
struct heard {
    char text[2000];
    int warnings;
};

static void hear(void *cookie, FlLogLevel level, const char *text)
{
    struct heard *h = cookie;
    const size_t n = strlen(h->text);

    h->warnings += level == FL_LOG_WARNING;
    snprintf(h->text + n, sizeof(h->text) - n, "%s\n", text);
}

/* Read everything with this configuration and return what the statistics say. */
static FlLoaderStats all_is_well(struct fx *fx, struct fl_read_cfg cfg, struct heard *h)
{
    FlLoaderStats st = { 0 };
    struct fl_read *r = NULL;

    if (h)
        cfg.log = (struct fl_log){ .fn = hear, .cookie = h };
    const int err = fl_read_open(&r, &cfg);
    T_EQ(err, 0);
    if (err) {
        fprintf(stderr, "%s\n", fl_last_error()->message);
        return st;
    }
    T_EQ(fx_run(fx, r, 300, 3, fx_draw), 300);
    fl_read_stats(r, &st);
    T_OK(fl_read_close(&r));
    return st;
}

static void refused_setup(struct fx *fx, int err)
{
    const struct refusal list[] = { { .nr = SYSCALL_SETUP, .err = err, .arg = ANY_ARG } };
    struct fl_read_cfg cfg = fx_cfg(fx);
    struct heard h = { 0 };
    struct fl_read *r = NULL;

    if (!refuse(list, 1))
        return;
    const FlLoaderStats st = all_is_well(fx, cfg, &h);
    T_STR(st.io_backend, "pread");
    T_HAS(st.io_reason, strerror(err));
    T_EQ(h.warnings, 1); // said once
    T_HAS(h.text, strerror(err));
    cfg.io = FL_IO_URING;
    T_EQ(fl_read_open(&r, &cfg), FL_ERR(err));
    T_HAS(fl_last_error()->message, strerror(err));
    T_HAS(fl_last_error()->message, "io_uring");
    T_OK(!r);
}

static void setup_eperm(struct fx *fx)
{
    refused_setup(fx, EPERM);
}

static void setup_enosys(struct fx *fx)
{
    refused_setup(fx, ENOSYS);
}

static void setup_enomem(struct fx *fx)
{
    refused_setup(fx, ENOMEM);
}

static void enter_eperm(struct fx *fx)
{
    const struct refusal list[] = { { .nr = SYSCALL_ENTER, .err = EPERM, .arg = ANY_ARG } };
    struct heard h = { 0 };

    if (!refuse(list, 1))
        return;
    const FlLoaderStats st = all_is_well(fx, fx_cfg(fx), &h);
    T_STR(st.io_backend, "pread");
    T_HAS(st.io_reason, strerror(EPERM));
    T_EQ(h.warnings, 1);
}

/* io_uring_register() with this opcode, its second argument. */
#define NO_REGISTER(opcode, errno_)                                                                \
    {                                                                                              \
        .nr = SYSCALL_REGISTER, .err = (errno_), .arg = 1, .mask = UINT32_MAX, .value = (opcode)   \
    }
#define OP_BUFFERS 0
#define OP_FILES2 13
#define OP_BUFFERS2 15
#define OP_BUFFERS_UPDATE 16

/* No registered buffers or files: io_uring works on without. */
static void register_refused(struct fx *fx)
{
    const struct refusal list[] = { NO_REGISTER(OP_BUFFERS, ENOMEM),
                                    NO_REGISTER(OP_BUFFERS2, EINVAL),
                                    NO_REGISTER(OP_FILES2, EINVAL) };
    if (!refuse(list, 3))
        return;
    const FlLoaderStats st = all_is_well(fx, fx_cfg(fx), NULL);
    if (!strcmp(st.io_backend, "pread"))
        return; // this machine has no io_uring to begin with
    T_EQ(st.io_registered, 0);
    T_HAS(st.io_reason, "RLIMIT_MEMLOCK");
}

/* The table of buffers is there, its memory is not. */
static void update_refused(struct fx *fx)
{
    const struct refusal list[] = { NO_REGISTER(OP_BUFFERS_UPDATE, ENOMEM) };

    if (!refuse(list, 1))
        return;
    const FlLoaderStats st = all_is_well(fx, fx_cfg(fx), NULL);
    if (!strcmp(st.io_backend, "pread"))
        return;
    T_EQ(st.io_registered & 2, 0);
    T_HAS(st.io_reason, "RLIMIT_MEMLOCK");
}

/* Before Linux 5.19 all buffers are registered at once. */
static void register_whole(struct fx *fx)
{
    const struct refusal list[] = { NO_REGISTER(OP_BUFFERS2, EINVAL) };
    struct fl_read_cfg cfg = fx_cfg(fx);

    if (!refuse(list, 1))
        return;
    cfg.bytes = 20 << 20;
    cfg.lazy = true;
    const FlLoaderStats st = all_is_well(fx, cfg, NULL);
    if (strcmp(st.io_backend, "pread"))
        T_EQ(st.io_registered & 2, 2);
}

/* fcntl(fd, F_SETFL, O_DIRECT) */
#define NO_O_DIRECT                                                                                \
    {                                                                                              \
        .nr = SYS_fcntl, .err = EINVAL, .arg = 1, .mask = UINT32_MAX, .value = F_SETFL, .arg2 = 2, \
        .mask2 = O_DIRECT, .value2 = O_DIRECT                                                      \
    }

static void direct_refused_at_open(struct fx *fx)
{
    const struct refusal list[] = { NO_O_DIRECT };
    struct fl_read_cfg cfg = fx_cfg(fx);
    struct fl_read *r = NULL;
    struct fl_sample s = { .n_reads = 1 }, *done[1];

    fx_evict(fx);
    if (!refuse(list, 1))
        return;
    T_EQ(all_is_well(fx, cfg, NULL).io_direct, 0);
    cfg.direct = FL_ON; // forced: an error that says so, for each sample
    T_EQ(fl_read_open(&r, &cfg), 0);
    s.reads[0] = (struct fl_read_req){ .container = 0, .offset = 1, .length = 10 };
    T_EQ(fl_read_submit(r, &s), 0);
    T_EQ(fl_read_wait(r, done, 1, fl_now_ns() + 5000000000), 1);
    T_EQ(s.err.code, FL_ERR(EINVAL));
    T_HAS(s.err.message, "direct = on");
    T_HAS(s.err.message, fx->files[0].path);
    fl_read_release(&s);
    T_OK(fl_read_close(&r));
}

/* The first reads fail, as on a file system that accepts the flag and then does not mean it: every file goes on
 * without it. Runs behind strace, which can count calls; a filter cannot. */
static void direct_refused_at_read(struct fx *fx)
{
    struct fl_read_cfg cfg = fx_cfg(fx);

    cfg.io = FL_IO_PREAD;
    cfg.inline_reads = true; // one thread: the calls come in order
    fx_evict(fx);
    const FlLoaderStats st = all_is_well(fx, cfg, NULL);
    T_EQ(st.io_direct, 2);
    T_OK(st.retries >= 3);
}

static void eintr_and_eagain(struct fx *fx)
{
    struct fl_read_cfg cfg = fx_cfg(fx);

    cfg.io = FL_IO_PREAD;
    T_OK(all_is_well(fx, cfg, NULL).retries >= 20);
}

static void stale_handle(struct fx *fx)
{
    struct fl_read_cfg cfg = fx_cfg(fx);

    cfg.io = FL_IO_PREAD;
    cfg.inline_reads = true;
    T_OK(all_is_well(fx, cfg, NULL).retries >= 1);
}

/* No locked memory for a ring of the size that was asked for: a smaller one does. */
static void smaller_ring(struct fx *fx)
{
    const FlLoaderStats st = all_is_well(fx, fx_cfg(fx), NULL);

    if (!strcmp(st.io_backend, "io_uring"))
        T_EQ(st.io_depth, FL_READ_DEPTH_MAX / 4);
}

static const struct {
    const char *name, *inject;
    void (*body)(struct fx *);
} traced[] = {
    { "O_DIRECT refused at the first reads", "pread64:error=EINVAL:when=1..3",
      direct_refused_at_read },
    { "pread: EINTR", "pread64:error=EINTR:when=2+3", eintr_and_eagain },
    { "pread: EAGAIN", "pread64:error=EAGAIN:when=2+3", eintr_and_eagain },
    { "pread: ESTALE, once", "pread64:error=ESTALE:when=5", stale_handle },
    { "pread: EIO, once", "pread64:error=EIO:when=7", stale_handle },
    { "io_uring_setup: ENOMEM, twice", "io_uring_setup:error=ENOMEM:when=1..2", smaller_ring },
};

static bool strace_works(void)
{
    int status = -1;
    const pid_t child = fork();

    if (!child) {
        execlp("strace", "strace", "-qq", "-o", "/dev/null", "true", (char *)NULL);
        _exit(1);
    }
    waitpid(child, &status, 0);
    return status == 0;
}

/* This program again, behind strace, with case number i alone, on the same files. */
static void behind_strace(struct fx *fx, char *self, size_t i)
{
    char number[8], inject[64],
        *args[16 + 2 * FX_FILES] = {
            "strace", "-f",          "-qq", "-o", "/dev/null", "-e", "trace=pread64,io_uring_setup",
            "-e",     "signal=none", "-e"
        };
    int status = -1, n = 10;

    t_case(traced[i].name);
    snprintf(inject, sizeof(inject), "inject=%s", traced[i].inject);
    snprintf(number, sizeof(number), "%zu", i);
    args[n++] = inject;
    const bool reads = !strncmp(traced[i].inject, "pread64", 7);
    for (unsigned k = 0; k < fx->n && reads;
         k++) { // reads of these files alone: not the program loader's
        args[n++] = "-P";
        args[n++] = fx->files[k].path;
    }
    args[n++] = self;
    args[n++] = fx->dir;
    args[n++] = number;
    fflush(NULL);
    const pid_t child = fork();
    if (!child) {
        setenv("ASAN_OPTIONS", "detect_leaks=0", 1); // it needs ptrace for itself
        execvp(args[0], args);
        _exit(1);
    }
    waitpid(child, &status, 0);
    T_EQ(status, 0);
}

/* A bad place on the drive: the sample on it is bad, those that shared the read are not. */
static void bad_sector(struct fx *fx)
{
    const struct refusal list[] = {
        { .nr = SYS_pread64, .err = EIO, .arg = 3, .mask = UINT32_MAX, .value = 51200 },
        { .nr = SYS_pread64, .err = EIO, .arg = 3, .mask = UINT32_MAX, .value = 49152 },
    };
    struct fl_read_cfg cfg = fx_cfg(fx);
    static const uint64_t at[] = { 49152, 50000, 51200, 53000 };
    struct fl_sample s[4], *done[4];
    struct fl_read *r = NULL;
    int n = 0;

    // The read of all four fails; alone, the first and the third do.
    cfg.io = FL_IO_PREAD;
    cfg.direct = FL_OFF;
    if (!refuse(list, 2))
        return;
    T_EQ(fl_read_open(&r, &cfg), 0);
    for (int i = 0; i < 4; i++) {
        s[i] = (struct fl_sample){ .id = i, .n_reads = 1 };
        s[i].reads[0] = (struct fl_read_req){ .container = 0, .offset = at[i], .length = 700 };
        T_EQ(fl_read_submit(r, &s[i]), 0);
    }
    while (n < 4) {
        const int got = fl_read_wait(r, done, 4, fl_now_ns() + 5000000000);
        T_OK(got > 0);
        if (got <= 0)
            return;
        n += got;
    }
    for (int i = 0; i < 4; i++) {
        T_EQ(s[i].err.code, i % 2 ? 0 : FL_ERR(EIO));
        if (i % 2)
            T_OK(fx_same(fx, &s[i]));
        else
            T_EQ(s[i].err.offset, at[i]);
        fl_read_release(&s[i]);
    }
    T_OK(fl_read_close(&r));
}

/* Kernels before 6.5, and files of others. */
static void no_cachestat(struct fx *fx)
{
    const struct refusal list[] = { { .nr = SYSCALL_CACHESTAT, .err = ENOSYS, .arg = ANY_ARG } };

    if (!refuse(list, 1))
        return;
    fx_warm(fx);
    T_EQ(all_is_well(fx, fx_cfg(fx), NULL).io_direct, 0);
    fx_evict(fx);
    all_is_well(fx, fx_cfg(fx), NULL);
}

static void no_memlock(struct fx *fx)
{
    const struct rlimit none = { 0, 0 };
    struct fl_read_cfg cfg = fx_cfg(fx);

    // As a user who is nobody: root may lock what it wants.
    if (geteuid() || setrlimit(RLIMIT_MEMLOCK, &none) || setgid(65534) || setuid(65534))
        return;
    const FlLoaderStats st = all_is_well(fx, cfg, NULL);
    if (!strcmp(st.io_backend, "io_uring")) {
        T_EQ(st.io_registered & 2, 0);
        T_HAS(st.io_reason, "RLIMIT_MEMLOCK");
    }
}

static void few_descriptors(struct fx *fx)
{
    const struct rlimit few = { 40, 40 };

    T_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int io = FL_IO_AUTO; io <= FL_IO_PREAD; io += FL_IO_PREAD) {
        struct fl_read_cfg cfg = fx_cfg(fx);
        cfg.io = (FlIo)io;
        all_is_well(fx, cfg, NULL);
    }
}

/* The rest of the program has taken all but a handful. */
static void hardly_any_descriptor(struct fx *fx)
{
    const struct rlimit few = { 64, 64 };
    struct fl_read_cfg cfg = fx_cfg(fx);
    struct fl_sample s = { .n_reads = 1 }, *done[1];
    struct fl_read *r = NULL;
    int fds[64], n = 0;

    T_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    T_EQ(fl_read_open(&r, &cfg), 0);
    while ((fds[n] = dup(0)) >= 0)
        n++;
    s.reads[0] = (struct fl_read_req){ .container = 0, .offset = 1, .length = 10 };
    T_EQ(fl_read_submit(r, &s), 0);
    T_EQ(fl_read_wait(r, done, 1, fl_now_ns() + 5000000000), 1);
    T_EQ(s.err.code, FL_ERR(EMFILE));
    T_HAS(s.err.message, "ulimit -n");
    fl_read_release(&s);
    for (int i = 0; i < 5; i++) // a sample of the fixture needs four at most
        close(fds[--n]);
    T_EQ(fx_run(fx, r, 200, 4, fx_draw), 200);
    T_OK(fl_read_close(&r));
    while (n)
        close(fds[--n]);
}

static void *fork_on_and_on(void *arg)
{
    _Atomic bool *stop = arg;

    while (!atomic_load(stop)) {
        const pid_t child = fork();
        if (!child) {
            usleep(1000); // lives on beside the reads
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
    return NULL;
}

/* Memory that a child shares is copied at the next write, and a drive that writes to the old page is not seen. */
static void forks_meanwhile(struct fx *fx)
{
    _Atomic bool stop = false;
    pthread_t thread;

    T_EQ(pthread_create(&thread, NULL, fork_on_and_on, &stop), 0);
    for (int io = FL_IO_AUTO; io <= FL_IO_PREAD; io += FL_IO_PREAD) {
        struct fl_read_cfg cfg = fx_cfg(fx);
        cfg.io = (FlIo)io;
        cfg.direct = FL_ON;
        for (int i = 0; i < 3; i++)
            all_is_well(fx, cfg, NULL);
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
    static struct fx fx, many;

    if (argc > 2) { // behind strace
        const int i = atoi(argv[2]);
        snprintf(fx.dir, sizeof(fx.dir), "%s", argv[1]);
        fx_fill(&fx, FX_FILES, 0);
        t_case(traced[i].name);
        traced[i].body(&fx);
        return t_failures ? 1 : 0;
    }

    // In /tmp, where a user who is nobody may read too.
    fx_make(&fx, "/tmp", FX_FILES, 0);
    chmod(fx.dir, 0755);
    if (built_with_uring) {
        in_child("io_uring_setup: EPERM", setup_eperm, &fx);
        in_child("io_uring_setup: ENOSYS", setup_enosys, &fx);
        in_child("io_uring_setup: ENOMEM", setup_enomem, &fx);
        in_child("io_uring_enter: EPERM", enter_eperm, &fx);
        in_child("nothing can be registered", register_refused, &fx);
        in_child("no buffer can be registered", update_refused, &fx);
        in_child("buffers all at once or not at all", register_whole, &fx);
    }
    in_child("O_DIRECT refused at open", direct_refused_at_open, &fx);
    in_child("a bad place on the drive", bad_sector, &fx);
    in_child("no cachestat", no_cachestat, &fx);
    in_child("no locked memory", no_memlock, &fx);
    in_child("a parent that forks", forks_meanwhile, &fx);
    const bool can_trace = strace_works();
    if (!can_trace)
        printf("left out: %zu cases behind strace, which does not work here\n", T_LEN(traced));
    for (size_t i = 0; i < T_LEN(traced) && can_trace; i++)
        behind_strace(&fx, argv[0], i);
    fx_make(&many, "/tmp", 200, 5000);
    in_child("40 descriptors, 200 containers", few_descriptors, &many);
    in_child("no descriptor left", hardly_any_descriptor, &many);
    fx_remove(&many);
    fx_remove(&fx);
    return t_done();
}
