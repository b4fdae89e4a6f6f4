/* SPDX-License-Identifier: Apache-2.0 */
/* decode = auto: when workers take pictures off the device. Only while it is busy, a filled batch waits for it
 * and none is ready for the consumer. */
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

int main(void)
{
    for (size_t i = 0; i < T_LEN(cases); i++) {
        struct fl_slot slots[3] = { 0 };
        struct fl_output outputs[2] = { 0 };
        struct fl_pool pool = { .n_slots = 3,
                                .n_outputs = 2,
                                .slots = slots,
                                .outputs = outputs,
                                .device_busy = cases[i].busy };
        t_case(cases[i].name);
        for (int k = 0; k < 3; k++)
            slots[k].out.state = cases[i].slots[k];
        for (int k = 0; k < 2; k++)
            outputs[k].state = cases[i].outputs[k];
        atomic_store(&pool.device_behind, !cases[i].behind);
        fl_pool_look(&pool);
        T_EQ(atomic_load(&pool.device_behind), cases[i].behind);
    }
    return t_done();
}
