/* SPDX-License-Identifier: Apache-2.0 */
/* decode = auto: when workers take pictures off the device, and how many. Only while it is busy, a filled batch
 * waits for it and none is ready for the consumer. */
#include "t.h"

#include "batch.h"

static const struct {
    const char *name;
    bool busy;
    enum fl_slot_state slots[3], outputs[2];
    bool behind;
} cases[] = {
    { "the device limits",
      true,
      { FL_SLOT_COPYING, FL_SLOT_FILLED, FL_SLOT_FILLING },
      { FL_SLOT_FILLING, FL_SLOT_HELD },
      true },
    { "nothing waits for it",
      true,
      { FL_SLOT_COPYING, FL_SLOT_FILLING, FL_SLOT_FREE },
      { FL_SLOT_FILLING, FL_SLOT_HELD },
      false },
    { "the consumer limits: a batch is ready",
      true,
      { FL_SLOT_COPYING, FL_SLOT_FILLED, FL_SLOT_FILLED },
      { FL_SLOT_READY, FL_SLOT_HELD },
      false },
    { "the consumer limits: its step holds the device's slots, which is no work",
      false,
      { FL_SLOT_COPYING, FL_SLOT_FILLED, FL_SLOT_FILLED },
      { FL_SLOT_FILLING, FL_SLOT_HELD },
      false },
    { "at the beginning",
      false,
      { FL_SLOT_FILLING, FL_SLOT_FREE, FL_SLOT_FREE },
      { FL_SLOT_FREE, FL_SLOT_FREE },
      false },
};

static uint32_t look(size_t i, uint32_t share)
{
    struct fl_slot slots[3] = { 0 };
    struct fl_output outputs[2] = { 0 };
    struct fl_pool pool = { .n_slots = 3,
                            .n_outputs = 2,
                            .slots = slots,
                            .outputs = outputs,
                            .device_busy = cases[i].busy };

    for (int k = 0; k < 3; k++)
        slots[k].out.state = cases[i].slots[k];
    for (int k = 0; k < 2; k++)
        outputs[k].state = cases[i].outputs[k];
    atomic_store(&pool.cpu_share, share);
    fl_pool_balance(&pool);
    return atomic_load(&pool.cpu_share);
}

/* Device and workers of these rates, in pictures a millisecond: the share comes to where both take equally
 * long, and stays about there, though a batch was shared out some batches before it comes out. */
static void converges(double device, double workers)
{
    const double ideal = 256 * workers / (device + workers);
    enum { DELAY = 4 };
    uint32_t shares[400 + DELAY] = { 0 };
    double sum = 0;

    for (int i = 0; i < 400; i++) {
        const bool limits = (256 - shares[i]) / device > shares[i] / workers;
        shares[i + DELAY] = look(limits ? 0 : 1, shares[i + DELAY - 1]);
        sum += i >= 200 ? shares[i] : 0;
        T_OK(i < 100 || (shares[i] > ideal - 60 && shares[i] < ideal + 60));
    }
    T_OK(sum / 200 > ideal - 16 && sum / 200 < ideal + 16);
}

int main(void)
{
    for (size_t i = 0; i < T_LEN(cases); i++) {
        t_case(cases[i].name);
        T_EQ(look(i, 0), cases[i].behind ? FL_SHARE_STEP : 0);
        T_EQ(look(i, 64), cases[i].behind ? 64 + FL_SHARE_STEP : 64 - FL_SHARE_STEP);
        T_EQ(look(i, FL_SHARE_MOST),
             cases[i].behind ? FL_SHARE_MOST : FL_SHARE_MOST - FL_SHARE_STEP);
    }
    t_case("shares");
    converges(2.8, 18);
    converges(50, 5);
    converges(500, 18);
    converges(10, 10);
    return t_done();
}
