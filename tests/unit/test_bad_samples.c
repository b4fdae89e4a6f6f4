/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of bad samples: the report of a loader, lists of them, and loaders that leave them out. */
#include <feedline/feedline.h>

#include <sys/wait.h>

#include "base/hash.h"
#include "base/jsonl.h"
#include "make_set.h"
#include "t.h"

enum { N = 400, BYTES = 16, BATCH = 16 };

static char dir[256], set[300], grown[300], other[300];

static bool is_bad(int64_t id)
{
    return id % 23 == 5; // 5, 28, ...: 18 of 400
}

enum { BAD = 18 };

/* One shard: samples from..to of the numbering, every 23rd too short. `salt` moves all of them. */
static void shard(const char *folder, int number, int from, int to, int salt)
{
    char path[400], name[64], text[32];
    uint8_t bytes[BYTES + 1];

    snprintf(path, sizeof(path), "%s/s%d.tar", folder, number);
    FILE *f = fopen(path, "wb");
    for (int i = 0; i < salt; i++)
        ms_member(f, "skipped", "x", 1); // a member without a field, which moves the others
    for (int i = from; i < to; i++) {
        memset(bytes, i, sizeof(bytes));
        snprintf(name, sizeof(name), "%s%05d.bin", i == 28 ? "\xFF\xC3" : "k", i);
        ms_member(f, name, bytes, is_bad(i) ? 7 : BYTES);
        snprintf(name, sizeof(name), "%s%05d.cls", i == 28 ? "\xFF\xC3" : "k", i);
        ms_member(f, name, text, (size_t)snprintf(text, sizeof(text), "%d", i % 4));
    }
    static const char end[1024];
    fwrite(end, 1, sizeof(end), f);
    fclose(f);
}

static void make_sets(void)
{
    ms_temp(dir, sizeof(dir), "badset");
    snprintf(set, sizeof(set), "%s/set", dir);
    snprintf(grown, sizeof(grown), "%s/grown", dir);
    snprintf(other, sizeof(other), "%s/other", dir);
    mkdir(set, 0755);
    mkdir(grown, 0755);
    mkdir(other, 0755);
    shard(set, 1, 0, 200, 0);
    shard(set, 2, 200, N, 0);
    shard(grown, 0, 512, 532, 0); // a new one in front: all numbers move
    shard(grown, 1, 0, 200, 0);
    shard(grown, 2, 200, N, 0);
    shard(other, 1, 0, 200, 3); // the same keys, elsewhere
    shard(other, 2, 200, N, 3);
}

static FlConfig config(FlBadSample policy, int workers, const char *report)
{
    static const int64_t shape[] = { BYTES };
    FlConfig cfg = FL_CONFIG_DEFAULT;

    cfg.batch_size = BATCH;
    cfg.shuffle = FL_SHUFFLE_GLOBAL;
    cfg.seed = 3;
    cfg.n_workers = workers;
    cfg.read_bytes = 1 << 20;
    cfg.bad_sample = policy;
    cfg.bad_report = report;
    fl_config_label(&cfg, "cls");
    fl_config_raw(&cfg, "bin", FL_U8, 1, shape);
    return cfg;
}

struct run {
    int64_t good, holes, raised;
    int seen[N + 20]; // by number
};

/* `batches` of a loader (at most: to the end of the epoch). */
static int drain(FlLoader *l, int64_t batches, struct run *r)
{
    FlBatch b = { 0 };
    int err = 0;

    for (int64_t k = 0; k < batches; k++) {
        err = fl_loader_next(l, &b, NULL);
        if (err == -EBADMSG) {
            r->raised++;
            continue;
        }
        if (err)
            break;
        r->good += b.n_valid;
        r->holes += b.size - b.n_valid;
        for (int64_t i = 0; i < b.size; i++)
            r->seen[b.ids[i]] += b.valid[i];
        fl_batch_release(&b, NULL);
    }
    return err;
}

static struct run epoch(FlDataset *ds, const FlConfig *cfg)
{
    struct run r = { 0 };
    FlLoader *l = NULL;

    T_EQ(fl_loader_open(&l, ds, cfg), 0);
    if (!l)
        fprintf(stderr, "%s\n", fl_last_error()->message);
    else
        T_EQ(drain(l, INT64_MAX, &r), FL_EPOCH_END);
    fl_loader_close(&l);
    return r;
}

static char *slurp(const char *path, size_t *len)
{
    static char text[1 << 20];
    FILE *f = fopen(path, "rb");

    *len = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
    text[*len] = 0;
    if (f)
        fclose(f);
    return text;
}

static uint64_t hash_of(const char *path)
{
    size_t len;
    const char *text = slurp(path, &len);
    return len ? fl_hash64(text, len, 0) : 0;
}

static void spill(const char *path, const char *text)
{
    ms_write(path, text, strlen(text));
}

/* Check every line of a report; returns how many there are. */
static int check_report(const char *path, const char *action)
{
    size_t len;
    char *at = slurp(path, &len), *end, text[4200];
    int lines = 0;
    int64_t position = -1;

    for (; *at && (end = strchr(at, '\n')); at = end + 1, lines++) {
        struct fl_jsonl_reader r = { .at = at, .end = end };
        struct fl_jsonl_item item = { .text = text, .room = sizeof(text) };
        int more, members = 0;
        int64_t sample = -1, by = 0;
        while ((more = fl_jsonl_next(&r, &item)) == 1) {
            members++;
            if (!strcmp(item.name, "sample"))
                sample = item.number;
            if (!strcmp(item.name, "key")) {
                char key[32];
                snprintf(key, sizeof(key), "%s%05d", sample == 28 ? "\xFF\xC3" : "k", (int)sample);
                T_STR(item.text, key);
            }
            if (!strcmp(item.name, "position")) {
                T_OK(item.number >= position);
                position = item.number;
            }
            if (!strcmp(item.name, "container"))
                T_STR(item.text, sample < 200 ? "s1.tar" : "s2.tar");
            if (!strcmp(item.name, "column"))
                T_STR(item.text, "bin");
            if (!strcmp(item.name, "length"))
                T_EQ(item.number, 7);
            if (!strcmp(item.name, "code"))
                T_STR(item.text, "EBADMSG");
            if (!strcmp(item.name, "stage"))
                T_STR(item.text, "plan");
            if (!strcmp(item.name, "message"))
                T_HAS(item.text, "has 7 bytes, but the column's shape needs 16");
            if (!strcmp(item.name, "action"))
                T_STR(item.text, action);
            by |= !strcmp(item.name, "by");
        }
        T_EQ(more, 0);
        T_EQ(members, by ? 17 : 16);
        T_EQ(by, !strcmp(action, "substituted"));
        T_OK(is_bad(sample));
    }
    T_EQ(*at, 0);
    return lines;
}

static void test_report(FlDataset *ds)
{
    static const struct {
        const char *action;
        FlBadSample policy;
    } cases[] = { { "raised", FL_BAD_RAISE },
                  { "skipped", FL_BAD_SKIP },
                  { "substituted", FL_BAD_SUBSTITUTE } };
    char path[320], legs[320];

    snprintf(path, sizeof(path), "%s/report.jsonl", dir);
    snprintf(legs, sizeof(legs), "%s/legs.jsonl", dir);
    for (size_t i = 0; i < T_LEN(cases); i++) {
        uint64_t first = 0;
        for (int workers = 0; workers < 4; workers += 3) {
            FlConfig cfg = config(cases[i].policy, workers, path);
            t_case(cases[i].action);
            unlink(path);
            const struct run r = epoch(ds, &cfg);
            const int lines = check_report(path, cases[i].action);
            // Stand-ins that were bad themselves are reported too.
            T_OK(cases[i].policy == FL_BAD_SUBSTITUTE ? lines >= BAD : lines == BAD);
            if (cases[i].policy == FL_BAD_SKIP)
                T_EQ(r.holes, BAD);
            if (cases[i].policy == FL_BAD_SUBSTITUTE)
                T_EQ(r.good, N);
            T_OK(!first || first == hash_of(path)); // the same report whatever the workers did
            first = hash_of(path);
        }

        t_case("saved and restored: the same lines, none twice");
        char state[FL_STATE_BYTES];
        int size = 0, err = 0;
        unlink(legs);
        for (int leg = 0; err != FL_EPOCH_END; leg++) {
            FlConfig cfg = config(cases[i].policy, leg % 3, legs);
            struct run r = { 0 };
            FlLoader *l = NULL;
            T_EQ(fl_loader_open(&l, ds, &cfg), 0);
            if (size)
                T_EQ(fl_loader_restore(l, state, (size_t)size, false), 0);
            err = drain(l, 1 + leg % 4, &r);
            size = fl_loader_state(l, state, sizeof(state));
            fl_loader_close(&l);
        }
        T_OK(hash_of(path) == hash_of(legs));
    }
}

/* Ranks that append to one file at the same time, in processes of their own. */
static void test_ranks(FlDataset *ds)
{
    char path[320];
    pid_t pids[4];

    t_case("four ranks, one report");
    snprintf(path, sizeof(path), "%s/ranks.jsonl", dir);
    fflush(stdout);
    for (int rank = 0; rank < 4; rank++) {
        pids[rank] = fork();
        if (pids[rank])
            continue;
        FlDataset *own = ms_open(set);
        FlConfig cfg = config(FL_BAD_SKIP, 0, path);
        struct run r = { 0 };
        FlLoader *l = NULL;
        cfg.rank = rank;
        cfg.world_size = 4;
        cfg.batch_size = 4;
        int err = fl_loader_open(&l, own, &cfg);
        for (int e = 0; e < 5 && !err; e++)
            err = drain(l, INT64_MAX, &r) == FL_EPOCH_END ? 0 : 1;
        fl_loader_close(&l);
        fl_dataset_close(&own);
        _exit(err != 0);
    }
    for (int rank = 0; rank < 4; rank++) {
        int status = -1;
        waitpid(pids[rank], &status, 0);
        T_EQ(status, 0);
    }
    size_t len;
    int lines = 0;
    for (char *at = slurp(path, &len), *end; *at && (end = strchr(at, '\n')); at = end + 1, lines++)
        T_OK(!strncmp(at, "{\"dataset\": \"", 13) && end[-1] == '}');
    T_EQ(lines, 5 * BAD);

    t_case("and it is an exclusion list");
    FlConfig cfg = config(FL_BAD_RAISE, 1, NULL);
    cfg.exclude_file = path;
    T_EQ(epoch(ds, &cfg).good, N - BAD);
    t_case("but not while it grows: ranks would read different lists");
    FlLoader *l = NULL;
    cfg.bad_report = path;
    T_EQ(epoch(ds, &cfg).good, N - BAD); // one rank
    cfg.world_size = 2;
    T_EQ(fl_loader_open(&l, ds, &cfg), -EINVAL);
    T_HAS(fl_last_error()->message, "bad_report and exclude_file are the same file");
    T_HAS(fl_last_error()->message, path);
}

static int logged;

static void count_log(void *cookie, FlLogLevel level, const char *text)
{
    (void)cookie;
    if (level == FL_LOG_ERROR) {
        logged++;
        T_HAS(text, "/dev/full");
    }
}

static void test_report_errors(FlDataset *ds)
{
    FlConfig cfg = config(FL_BAD_SKIP, 0, "/nonexistent/folder/report");
    FlLoader *l = NULL;

    t_case("a report that cannot be opened");
    T_EQ(fl_loader_open(&l, ds, &cfg), -ENOENT);
    T_HAS(fl_last_error()->message, "/nonexistent/folder/report");

    t_case("a full disk is said once, and the loader goes on");
    cfg.bad_report = "/dev/full";
    cfg.log = count_log;
    T_EQ(epoch(ds, &cfg).good, N - BAD);
    T_EQ(logged, 1);
}

/* ---- exclusion lists ----------------------------------------------------------------------------- */

static void test_lists(FlDataset *ds)
{
    static const struct {
        const char *name, *text;
        int err;
        int64_t left; // samples, or
        const char *says;
    } cases[] = {
        { "empty", "", 0, N, NULL },
        { "comments, blank lines, line ends of another system",
          "# by hand\r\n\r\n{\"key\": \"k00007\"}\r\n", 0, N - 1, NULL },
        { "no line end", "{\"key\": \"k00007\"}", 0, N - 1, NULL },
        { "the same twice", "{\"key\": \"k00007\"}\n{\"key\": \"k00007\"}\n", 0, N - 1, NULL },
        { "with its container", "{\"key\": \"k00207\", \"container\": \"s2.tar\"}", 0, N - 1,
          NULL },
        { "in another container", "{\"key\": \"k00207\", \"container\": \"s1.tar\"}", -EINVAL, 0,
          "no sample with the key \"k00207\"" },
        { "bytes that are no text", "{\"key\": \"\\udcff\\udcc300028\"}", 0, N - 1, NULL },
        { "what a newer version may add", "{\"key\":\"k00001\",\"x\":[1,{}],\"y\":null}", 0, N - 1,
          NULL },
        { "no such key", "{\"key\": \"k00001\"}\n{\"key\": \"nope\"}", -EINVAL, 0,
          "line 2: dataset" },
        { "no key", "{\"sample\": 3}", -EBADMSG, 0, "line 1: the line has no \"key\"" },
        { "no JSON", "\n\nk00007", -EBADMSG, 0, "line 3: this is no line" },
        { "cut", "{\"key\": \"k00007\"}\n{\"key\": \"k000", -EBADMSG, 0, "line 2" },
        { "of another dataset",
          "{\"dataset\": \"0123456789abcdef\", \"path\": \"/data/theirs\", \"sample\": 7, \"key\": "
          "\"k00007\", \"container\": \"s1.tar\", \"offset\": 1, \"length\": 2}",
          -EINVAL, 0, "is of dataset /data/theirs (0123456789abcdef), not of " },
        { "of another dataset, without a place",
          "{\"dataset\": \"0123456789abcdef\", \"key\": \"k00007\"}", -EINVAL, 0, "not of " },
    };
    char path[320];

    snprintf(path, sizeof(path), "%s/list.jsonl", dir);
    for (size_t i = 0; i < T_LEN(cases); i++) {
        FlConfig cfg = config(FL_BAD_SKIP, 0, NULL);
        FlLoader *l = NULL;
        t_case(cases[i].name);
        spill(path, cases[i].text);
        cfg.exclude_file = path;
        T_EQ(fl_loader_open(&l, ds, &cfg), cases[i].err);
        if (cases[i].says) {
            T_HAS(fl_last_error()->message, cases[i].says);
            T_HAS(fl_last_error()->message, path);
        } else {
            T_EQ(fl_loader_samples(l), cases[i].left);
        }
        fl_loader_close(&l);
    }
    t_case("no such file");
    FlConfig cfg = config(FL_BAD_SKIP, 0, NULL);
    FlLoader *l = NULL;
    cfg.exclude_file = "/nonexistent/list";
    T_EQ(fl_loader_open(&l, ds, &cfg), -ENOENT);
    T_HAS(fl_last_error()->message, "/nonexistent/list");
}

/* verify's list, on the dataset, one that grew, and one with the same keys elsewhere. */
static void test_quarantine(FlDataset *ds)
{
    FlDataset *more = ms_open(grown), *foreign = ms_open(other);
    FlVerifyOptions how = { .struct_size = sizeof(how) };
    FlVerifyResult result;
    char path[320], report[320];

    // verify finds nothing here: the columns' shape is the loader's business. Its report is a list as well.
    t_case("an empty quarantine");
    snprintf(path, sizeof(path), "%s/quarantine.jsonl", dir);
    snprintf(report, sizeof(report), "%s/report2.jsonl", dir);
    how.quarantine = path;
    T_EQ(fl_dataset_verify(ds, &how, &result), 0);
    T_EQ(result.bad, 0);
    T_EQ(access(path, F_OK), 0);
    how.quarantine = "/nonexistent/list";
    T_EQ(fl_dataset_verify(ds, &how, &result), -ENOENT);
    T_HAS(fl_last_error()->message, "/nonexistent/list");

    FlConfig cfg = config(FL_BAD_SKIP, 2, report);
    epoch(ds, &cfg);
    cfg = config(FL_BAD_RAISE, 2, NULL);
    cfg.exclude_file = report;
    t_case("the dataset itself");
    struct run r = epoch(ds, &cfg);
    T_EQ(r.good, N - BAD);
    for (int i = 0; i < N; i++)
        T_EQ(r.seen[i], !is_bad(i));
    t_case("one that grew: every number is another one");
    T_EQ(epoch(more, &cfg).good, N - BAD + 20); // 512 to 531: none is bad
    t_case("the same keys at other places are other samples");
    FlLoader *l = NULL;
    T_EQ(fl_loader_open(&l, foreign, &cfg), -EINVAL);
    T_HAS(fl_last_error()->message, set);
    T_HAS(fl_last_error()->message, other);

    t_case("together with exclude, subset and weights");
    static const int64_t exclude[] = { 0, 5, 7 }, subset[] = { 9, 5, 7, 9, 11, 28 };
    cfg.exclude = exclude;
    cfg.n_exclude = T_LEN(exclude);
    T_EQ(epoch(ds, &cfg).good, N - BAD - 2);
    cfg.subset = subset;
    cfg.n_subset = T_LEN(subset);
    r = epoch(ds, &cfg);
    T_EQ(r.good, 3);
    T_OK(r.seen[9] == 2 && r.seen[11] == 1);
    // The weights of what is left out do not count, and the others keep theirs.
    static const double weights[] = { 1, 100, 100, 0, 1, 100 };
    cfg.weights = weights;
    cfg.epoch_samples = 4000;
    r = epoch(ds, &cfg);
    T_OK(r.seen[9] > 1850 && r.seen[9] < 2150 && r.seen[11] == 4000 - r.seen[9]);

    t_case("in balance");
    cfg = config(FL_BAD_RAISE, 2, NULL);
    cfg.exclude_file = report;
    snprintf(cfg.balance, sizeof(cfg.balance), "cls");
    cfg.epoch_samples = 4000;
    r = epoch(ds, &cfg);
    for (int c = 0; c < 4; c++) {
        int n = 0;
        for (int i = c; i < N; i += 4)
            n += r.seen[i];
        T_OK(n > 880 && n < 1120); // 1,000, sigma 27
    }

    t_case("a mixture's list goes to its parts");
    const FlPart parts[] = { { .dataset = foreign, .weight = 1 }, { .dataset = ds, .weight = 1 } };
    cfg = config(FL_BAD_SKIP, 2, report);
    cfg.epoch_samples = 4 * N;
    unlink(report);
    T_EQ(fl_loader_open_mixture(&l, parts, 2, &cfg), 0);
    struct run mixed = { 0 };
    T_EQ(drain(l, INT64_MAX, &mixed), FL_EPOCH_END);
    T_OK(mixed.holes >= 2 * BAD);
    fl_loader_close(&l);
    cfg = config(FL_BAD_RAISE, 2, NULL);
    cfg.epoch_samples = 4 * N;
    cfg.exclude_file = report;
    T_EQ(fl_loader_open_mixture(&l, parts, 2, &cfg), 0);
    T_EQ(drain(l, INT64_MAX, &mixed), FL_EPOCH_END);
    T_EQ(mixed.raised, 0);
    fl_loader_close(&l);
    t_case("and none of its lines may be of a third dataset");
    T_EQ(fl_loader_open(&l, ds, &cfg), -EINVAL);
    fl_dataset_close(&more);
    fl_dataset_close(&foreign);
}

static void test_state(FlDataset *ds)
{
    static const int64_t exclude[] = { 5, 28 };
    char path[320], state[FL_STATE_BYTES];
    FlConfig cfg = config(FL_BAD_SKIP, 1, NULL);
    FlLoader *l = NULL;
    struct run r = { 0 };

    t_case("a state knows what was excluded");
    snprintf(path, sizeof(path), "%s/state.jsonl", dir);
    spill(path, "{\"key\": \"k00005\"}\n{\"key\": \"\\udcff\\udcc300028\"}\n");
    cfg.exclude_file = path;
    T_EQ(fl_loader_open(&l, ds, &cfg), 0);
    drain(l, 3, &r);
    const int size = fl_loader_state(l, state, sizeof(state));
    fl_loader_close(&l);
    T_EQ(fl_loader_open(&l, ds, &cfg), 0);
    T_EQ(fl_loader_restore(l, state, (size_t)size, false), 0);
    fl_loader_close(&l);
    // A file or an array: the samples count, not where they stand.
    cfg.exclude_file = NULL;
    cfg.exclude = exclude;
    cfg.n_exclude = 2;
    T_EQ(fl_loader_open(&l, ds, &cfg), 0);
    T_EQ(fl_loader_restore(l, state, (size_t)size, false), 0);
    fl_loader_close(&l);
    cfg.n_exclude = 1;
    T_EQ(fl_loader_open(&l, ds, &cfg), 0);
    T_EQ(fl_loader_restore(l, state, (size_t)size, false), -EINVAL);
    T_HAS(fl_last_error()->message, "exclusion list");
    T_HAS(fl_last_error()->message, "2 samples were excluded then, 1 are now");
    T_EQ(fl_loader_restore(l, state, (size_t)size, true), 0);
    T_EQ(drain(l, INT64_MAX, &r), FL_EPOCH_END);
    fl_loader_close(&l);
}

/* ---- caps ---------------------------------------------------------------------------------------- */

/* Position of the first batch that is refused for the number of bad samples before it, -1: none. Saved and
 * restored behind `save` batches. */
static int64_t struck_at(FlDataset *ds, FlConfig *cfg, int save)
{
    char state[FL_STATE_BYTES];
    FlLoader *l = NULL;
    FlBatch b = { 0 };
    int64_t at = 0, epoch_no;
    int err = 0;

    T_EQ(fl_loader_open(&l, ds, cfg), 0);
    for (int k = 0; !err; k++) {
        if (k == save) {
            const int size = fl_loader_state(l, state, sizeof(state));
            fl_loader_close(&l);
            T_EQ(fl_loader_open(&l, ds, cfg), 0);
            T_EQ(fl_loader_restore(l, state, (size_t)size, false), 0);
        }
        at = fl_loader_position(l, &epoch_no);
        err = fl_loader_next(l, &b, NULL);
        if (!err)
            fl_batch_release(&b, NULL);
    }
    if (err == -EBADMSG) { // the loader stays usable, and a new epoch counts anew
        T_HAS(fl_last_error()->message, "more than max_bad");
        while ((err = fl_loader_next(l, &b, NULL)) == -EBADMSG)
            ;
        T_EQ(err, FL_EPOCH_END);
        T_EQ(fl_loader_next(l, &b, NULL), 0);
        fl_batch_release(&b, NULL);
    } else {
        at = -1;
    }
    fl_loader_close(&l);
    return at;
}

static void test_caps(FlDataset *ds)
{
    static int64_t thrice[3 * N];

    for (int i = 0; i < 3 * N; i++)
        thrice[i] = i % N;
    for (int policy = FL_BAD_SKIP; policy <= FL_BAD_SUBSTITUTE; policy++) {
        int64_t number = -1, rate = -1;
        for (int workers = 0; workers < 4; workers += 3)
            for (int save = -1; save < 8; save += 4) {
                t_case("a cap in number strikes at the same batch in every run");
                FlConfig cfg = config((FlBadSample)policy, workers, NULL);
                cfg.max_bad = 9;
                const int64_t at = struck_at(ds, &cfg, save);
                T_OK(at > 0 && at < N);
                T_OK(number < 0 || at == number);
                number = at;
                cfg.max_bad = 2 * BAD;
                T_EQ(struck_at(ds, &cfg, save), -1);
                t_case("and one in rate, after a thousand samples");
                cfg.max_bad = 0;
                cfg.subset = thrice;
                cfg.n_subset = 3 * N;
                cfg.max_bad_rate = 0.03; // 0.045 are bad
                const int64_t there = struck_at(ds, &cfg, save);
                T_OK(there >= 1000 - BATCH && there < 3 * N);
                T_OK(rate < 0 || there == rate);
                rate = there;
                cfg.max_bad_rate = 0.06;
                T_EQ(struck_at(ds, &cfg, save), -1);
            }
    }
}

/* ---- what an error says --------------------------------------------------------------------------- */

/* Sample 0 is good, the others each have something. */
static void faulty_shard(const char *folder)
{
    char path[400];
    struct mj_bytes jpeg = mj_make(&(struct mj_spec){ .w = 64, .h = 48, .components = 3 });

    snprintf(path, sizeof(path), "%s/s.tar", folder);
    FILE *f = fopen(path, "wb");
    static const char *const keys[] = { "good", "cut", "no-picture", "short", "long", "lacks" };
    for (size_t i = 0; i < T_LEN(keys); i++) {
        char name[64], bytes[64] = { 0 };
        snprintf(name, sizeof(name), "%s.bin", keys[i]);
        ms_member(f, name, bytes, i == 3 ? 5 : BYTES);
        snprintf(name, sizeof(name), "%s.jpg", keys[i]);
        ms_member(f, name, i == 2 ? (const uint8_t *)"plain text" : jpeg.data,
                  i == 1   ? jpeg.len / 2
                  : i == 2 ? 10
                           : jpeg.len);
        snprintf(name, sizeof(name), "%s.txt", keys[i]);
        if (i != 5)
            ms_member(f, name, bytes, i == 4 ? 60 : 4);
    }
    static const char end[1024];
    fwrite(end, 1, sizeof(end), f);
    fclose(f);
    free(jpeg.data);
}

static void test_errors(void)
{
    static const struct {
        const char *key, *field, *says;
        FlStage stage;
    } cases[] = {
        { "cut", "jpg", "decode: JPEG: ", FL_STAGE_DECODE },
        { "no-picture", "jpg", "decode: JPEG header: no start marker", FL_STAGE_DECODE },
        { "short", "bin", "plan: field \"bin\" has 5 bytes, but the column's shape needs 16",
          FL_STAGE_PLAN },
        { "long", "txt", "plan: field \"txt\" has 60 bytes, more than the column's max_bytes 8",
          FL_STAGE_PLAN },
        { "lacks", "bin", "plan: the sample has no field \"txt\"", FL_STAGE_PLAN },
    };
    static const int64_t shape[] = { BYTES };
    const FlImage image = { .width = 8, .height = 8 };
    char folder[300], path[320];
    FlConfig cfg = FL_CONFIG_DEFAULT;
    FlLoader *l = NULL;
    FlBatch b = { 0 };
    FlFieldSpan span;

    t_case("errors name shard, key, offset, stage and what the codec said");
    snprintf(folder, sizeof(folder), "%s/faulty", dir);
    snprintf(path, sizeof(path), "%s/faulty/s.tar", dir);
    mkdir(folder, 0755);
    faulty_shard(folder);
    FlDataset *ds = ms_open(folder);
    cfg.batch_size = 1;
    cfg.n_workers = 1;
    fl_config_bytes(&cfg, "txt", 8);
    fl_config_raw(&cfg, "bin", FL_U8, 1, shape);
    fl_config_image(&cfg, "jpg", &image);
    T_EQ(fl_loader_open(&l, ds, &cfg), 0);
    T_EQ(fl_loader_next(l, &b, NULL), 0);
    fl_batch_release(&b, NULL);
    for (size_t i = 0; i < T_LEN(cases); i++) {
        const FlError *e = fl_last_error();
        t_case(cases[i].key);
        T_EQ(fl_loader_next(l, &b, NULL), -EBADMSG);
        T_EQ(e->sample, (int64_t)i + 1);
        T_EQ(e->position, (int64_t)i + 1);
        T_EQ(e->stage, cases[i].stage);
        T_STR(e->key, cases[i].key);
        T_STR(e->container, path);
        T_HAS(e->message, path);
        T_HAS(e->message, cases[i].key);
        T_HAS(e->message, cases[i].says);
        for (int32_t f = 0; f < 3; f++) {
            T_EQ(fl_dataset_span(ds, (int64_t)i + 1, f, &span), 0);
            if (!strcmp(span.name, cases[i].field))
                T_OK(e->offset >= span.offset && e->offset <= span.offset + span.length);
        }
    }
    T_EQ(fl_loader_next(l, &b, NULL), FL_EPOCH_END);
    fl_loader_close(&l);

    t_case("a shard that was cut since: every sample behind the cut, by name");
    T_EQ(truncate(path, 2000), 0);
    cfg.bad_sample = FL_BAD_SKIP;
    cfg.batch_size = 6;
    T_EQ(fl_loader_open(&l, ds, &cfg), 0);
    T_EQ(fl_loader_next(l, &b, NULL), 0);
    T_OK(b.n_valid == 0);
    fl_batch_release(&b, NULL);
    fl_loader_close(&l);
    cfg.bad_sample = FL_BAD_RAISE;
    T_EQ(fl_loader_open(&l, ds, &cfg), 0);
    T_EQ(fl_loader_next(l, &b, NULL), -EBADMSG);
    T_HAS(fl_last_error()->message, path);
    T_HAS(fl_last_error()->message, "has 2000 bytes, but the index was made for");
    T_STR(fl_last_error()->key, "good");
    fl_loader_close(&l);
    fl_dataset_close(&ds);
}

/* ---- evaluation ---------------------------------------------------------------------------------- */

static void test_evaluation(FlDataset *ds)
{
    static const double weights[N] = { 1 };
    const FlImage image = { .width = 8, .height = 8, .crop = FL_CROP_RANDOM_RESIZED, .flip = 0.5f };
    FlConfig cfg = config(FL_BAD_SUBSTITUTE, 1, NULL);
    struct run r = { 0 };

    t_case("evaluation: every sample once, over ranks of any number, in order");
    fl_config_image(&cfg, "jpg", &image);
    cfg.weights = weights;
    cfg.epoch_samples = 7;
    cfg.tail = FL_TAIL_DROP;
    snprintf(cfg.balance, sizeof(cfg.balance), "cls");
    fl_config_evaluation(&cfg);
    const FlImage *im = &cfg.columns[2].image;
    T_EQ(im->crop, FL_CROP_CENTER);
    T_EQ(im->exact, FL_ON);
    T_OK(im->flip == 0 && im->width == 8);
    T_EQ(cfg.bad_sample, FL_BAD_RAISE);
    cfg.n_columns = 1; // cls alone is good everywhere
    cfg.epochs = 1;
    for (int world = 1; world < 8; world += 3) {
        for (int pad = 0; pad < 2; pad++) {
            memset(&r, 0, sizeof(r));
            for (int rank = 0; rank < world; rank++) {
                FlLoader *l = NULL;
                FlBatch b = { 0 };
                int64_t position = -1, batches = 0;
                cfg.rank = rank;
                cfg.world_size = world;
                cfg.tail = pad ? FL_TAIL_PAD : FL_TAIL_PARTIAL;
                T_EQ(fl_loader_open(&l, ds, &cfg), 0);
                while (!fl_loader_next(l, &b, NULL)) {
                    T_OK(b.position > position);
                    position = b.position;
                    batches++;
                    for (int64_t i = 0; i < b.size; i++)
                        if (b.valid[i]) {
                            r.seen[b.ids[i]]++;
                            T_EQ(b.ids[i], b.position + i);
                        }
                    fl_batch_release(&b, NULL);
                }
                T_EQ(batches, fl_loader_batches(l));
                if (pad)
                    T_EQ(batches, (N + BATCH * world - 1) / (BATCH * world));
                fl_loader_close(&l);
            }
            for (int i = 0; i < N; i++)
                T_EQ(r.seen[i], 1);
        }
    }
}

int main(void)
{
    make_sets();
    FlDataset *ds = ms_open(set);
    test_report(ds);
    test_ranks(ds);
    test_report_errors(ds);
    test_lists(ds);
    test_quarantine(ds);
    test_state(ds);
    test_caps(ds);
    test_errors();
    test_evaluation(ds);
    fl_dataset_close(&ds);
    ms_remove(dir);
    return t_done();
}
