// SPDX-License-Identifier: GPL-2.0
/*
 * Test of the communication manager apm_cm from inside a guest: both ends of
 * each connection on two ports of one device, over the fabric (cst.h).
 *
 * Loading the module runs all tests and prints a line for each to the kernel
 * log ("ok 3 - name", "not ok 3 - name: why", as in TAP); how many failed can
 * be read from its parameters.  Nobody else may use apm_cm meanwhile.
 *
 *	insmod apm_cm_selftest.ko device=ehca0
 *	cat /sys/module/apm_cm_selftest/parameters/failures
 */
#include <linux/module.h>
#include <linux/random.h>
#include <linux/slab.h>

#include "cst.h"

#define SERVICE		0x00ca11ed00000001ULL

static char *device = "ehca0";
module_param(device, charp, 0444);
MODULE_PARM_DESC(device, "device to test (default ehca0)");

static uint ports[2] = { 1, 2 };
module_param_array(ports, uint, NULL, 0444);
MODULE_PARM_DESC(ports, "its two ports, caller's and called (default 1,2)");

static char *only = "";
module_param(only, charp, 0444);
MODULE_PARM_DESC(only, "run tests with this in their name (default all)");

static ulong seed;
module_param(seed, ulong, 0444);
MODULE_PARM_DESC(seed, "of the random messages (default 0: a new one)");

static int failures = -1;
module_param(failures, int, 0444);
MODULE_PARM_DESC(failures, "result: how many tests failed, -1 not finished");

static const struct selftest * const groups[] = {
	cm_tests, lap_tests, qp_tests,
};

static bool run(struct test *t, const struct selftest *test, int number)
{
	test_begin(t);
	test->run(t);
	test_end(t);
	if (t->failed)
		pr_err("apm_cm_selftest: not ok %d - %s: %s\n", number,
		       test->name, t->why);
	else
		pr_info("apm_cm_selftest: ok %d - %s\n", number, test->name);
	return !t->failed;
}

static void run_all(struct test *t)
{
	const struct selftest *test;
	int number = 0, bad = 0;
	unsigned int g;

	for (g = 0; g < ARRAY_SIZE(groups); g++) {
		for (test = groups[g]; test->name; test++) {
			if (!strstr(test->name, only))
				continue;
			if (!run(t, test, ++number))
				bad++;
		}
	}
	pr_info("apm_cm_selftest: 1..%d\n", number);
	pr_info("apm_cm_selftest: %d of %d failed\n", bad, number);
	failures = bad;
}

static int __init selftest_init(void)
{
	struct test *t = kzalloc(sizeof(*t), GFP_KERNEL);
	int ret;

	if (!t)
		return -ENOMEM;
	t->dev = ib_device_get_by_name(device, RDMA_DRIVER_UNKNOWN);
	if (!t->dev) {
		pr_err("apm_cm_selftest: no device %s\n", device);
		ret = -ENODEV;
		goto out;
	}
	if (!rdma_is_port_valid(t->dev, ports[0]) ||
	    !rdma_is_port_valid(t->dev, ports[1]) || ports[0] == ports[1]) {
		pr_err("apm_cm_selftest: %s has no ports %u and %u; two are wanted\n",
		       device, ports[0], ports[1]);
		ret = -EINVAL;
		goto out_dev;
	}
	t->port[0] = ports[0];
	t->port[1] = ports[1];
	t->seed = seed ? seed : get_random_u32();
	pr_info("apm_cm_selftest: seed=%llu\n", t->seed);
	ret = harness_init(t);
	if (ret) {
		pr_err("apm_cm_selftest: cannot start on ports %u and %u (error %d)\n",
		       ports[0], ports[1], ret);
		goto out_dev;
	}
	ret = make_listener(t, SERVICE);
	if (ret)
		pr_err("apm_cm_selftest: cannot listen (error %d)\n", ret);
	else
		run_all(t);
	harness_exit(t);
out_dev:
	ib_device_put(t->dev);
out:
	kfree(t);
	return ret;
}

static void __exit selftest_exit(void)
{
}

module_init(selftest_init);
module_exit(selftest_exit);
MODULE_DESCRIPTION("Test of the communication manager apm_cm");
MODULE_LICENSE("GPL");
