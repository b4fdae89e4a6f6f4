/* SPDX-License-Identifier: Apache-2.0 */
/* The progress bar. */
#define _DEFAULT_SOURCE // isatty, strtoll
#include "cli.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void time_left(char buf[32], const FlProgress *p, double share)
{
    const double left = share > 0.005 && p->seconds > 0.5 ? p->seconds / share - p->seconds : -1;

    if (left < 0)
        snprintf(buf, 32, " ");
    else if (left < 90)
        snprintf(buf, 32, ", %.0f s left", left);
    else
        snprintf(buf, 32, ", %.0f min left", left / 60);
}

static double share_done(const FlProgress *p)
{
    if (p->total_bytes)
        return (double)p->bytes / (double)p->total_bytes;
    return p->total > 0 ? (double)p->done / (double)p->total : 0;
}

int cli_progress(void *cookie, const FlProgress *p)
{
    enum { WIDTH = 24 };
    struct cli_bar *bar = cookie;
    const double share = share_done(p), seconds = p->seconds > 0 ? p->seconds : 1e-9;
    char done[32], total[32], rate[16], left[32], bad[48] = "", cells[WIDTH + 1];

    if (bar->quiet)
        return 0;
    cli_count(done, p->done);
    cli_bytes(rate, (double)p->bytes / seconds);
    if (p->bad)
        snprintf(bad, sizeof(bad), ", %lld bad", (long long)p->bad);
    if (isatty(STDERR_FILENO)) {
        for (int i = 0; i < WIDTH; i++)
            cells[i] = i < (int)(share * WIDTH) ? '#' : '.';
        cells[WIDTH] = '\0';
        time_left(left, p, share);
        fprintf(stderr, "\r\033[K%s [%s] %3.0f%% %s samples, %s/s%s%s", p->what, cells, share * 100,
                done, rate, bad, left);
        fflush(stderr);
        bar->shown = true;
    } else if (p->seconds - bar->printed >= 10) {
        bar->printed = p->seconds;
        fprintf(stderr, "%s: %s of %s samples, %s/s%s\n", p->what, done,
                p->total < 0 ? "?" : cli_count(total, p->total), rate, bad);
    }
    return 0;
}

void cli_bar_end(struct cli_bar *bar)
{
    if (bar->shown)
        fprintf(stderr, "\r\033[K");
    bar->shown = false;
}
