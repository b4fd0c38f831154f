// SPDX-License-Identifier: GPL-2.0
/*
 * apm_traffic command language: one line of words to struct at_cmd.  The one
 * door for everything a user writes; docs/consumer.md describes it.
 */
#include <linux/ctype.h>
#include <linux/inet.h>
#include <linux/string.h>

#include "at.h"

enum at_type {
	ATV_U64,
	ATV_U32,
	ATV_GID,
	ATV_RAIL,
	ATV_NAME,
	ATV_RATE,
	ATV_CHOICE,
};

struct at_word {
	const char *name;
	enum at_type type;
	u64 min, max;
	void *dst;
	bool *given;
	bool required;
	const char * const *choices;	/* ATV_CHOICE into s8 */
	const char *expected;
};

__printf(5, 6)
static int at_bad(struct at_cmd *cmd, int ret, const char *word,
		  const char *value, const char *fmt, ...)
{
	va_list args;

	strscpy(cmd->bad_word, word, sizeof(cmd->bad_word));
	strscpy(cmd->bad_value, value, sizeof(cmd->bad_value));
	va_start(args, fmt);
	vscnprintf(cmd->expected, sizeof(cmd->expected), fmt, args);
	va_end(args);
	return ret;
}

static bool at_parse_gid(const char *text, union ib_gid *gid)
{
	const char *end;

	return in6_pton(text, -1, gid->raw, -1, &end) && !*end;
}

static int at_parse_value(struct at_cmd *cmd, const struct at_word *w,
			  char *value)
{
	u64 n;

	switch (w->type) {
	case ATV_RATE:
		if (!strcmp(value, "max")) {
			*(u32 *)w->dst = 0;
			return 0;
		}
		fallthrough;
	case ATV_U32:
	case ATV_U64:
		if (kstrtou64(value, 0, &n) || n < w->min || n > w->max)
			return at_bad(cmd, -EINVAL, w->name, value,
				      "%sa number from %llu to %llu",
				      w->type == ATV_RATE ? "max, or " : "",
				      w->min, w->max);
		if (w->type == ATV_U64)
			*(u64 *)w->dst = n;
		else
			*(u32 *)w->dst = n;
		return 0;
	case ATV_GID:
		if (!at_parse_gid(value, w->dst))
			return at_bad(cmd, -EINVAL, w->name, value,
				      "a GID such as fe80::2:c903:0:1");
		return 0;
	case ATV_RAIL: {
		typeof(&cmd->p.rail[0]) rail = w->dst;
		char *colon = strchr(value, ':');
		u32 port;

		if (!strcmp(value, "none") && !w->required) {
			rail->given = false;
			return 0;
		}
		if (!colon)
			return at_bad(cmd, -EINVAL, w->name, value,
				      "PORT:DGID such as 1:fe80::2:c903:0:1");
		*colon = 0;
		if (kstrtou32(value, 10, &port))
			port = 0;
		*colon = ':';
		if (port < 1 || port > 255)
			return at_bad(cmd, -EINVAL, w->name, value,
				      "a local port number from 1 before the first colon");
		if (!at_parse_gid(colon + 1, &rail->dgid))
			return at_bad(cmd, -EINVAL, w->name, colon + 1,
				      "a GID such as fe80::2:c903:0:1 after PORT:");
		rail->port = port;
		rail->given = true;
		return 0;
	}
	case ATV_NAME:
		if (!*value || strlen(value) >= w->max)
			return at_bad(cmd, -EINVAL, w->name, value,
				      "a device name such as ehca0");
		strscpy(w->dst, value, w->max);
		return 0;
	case ATV_CHOICE: {
		unsigned int i;

		for (i = 0; w->choices[i]; i++) {
			if (!strcmp(value, w->choices[i])) {
				*(s8 *)w->dst = i;
				return 0;
			}
		}
		return at_bad(cmd, -EINVAL, w->name, value, "%s", w->expected);
	}
	}
	return -EINVAL;
}

static int at_parse_words(struct at_cmd *cmd, char *text,
			  const struct at_word *words, unsigned int n)
{
	unsigned long seen = 0;
	unsigned int i;
	char *word;
	int ret;

	while ((word = strsep(&text, " \t\n"))) {
		char *value;

		if (!*word)
			continue;
		value = strchr(word, '=');
		if (!value)
			return at_bad(cmd, -EINVAL, word, "",
				      "word=value");
		*value++ = 0;
		for (i = 0; i < n; i++)
			if (!strcmp(word, words[i].name))
				break;
		if (i == n) {
			char list[128];
			size_t len = 0;

			list[0] = 0;
			for (i = 0; i < n; i++)
				len += scnprintf(list + len,
						 sizeof(list) - len, " %s",
						 words[i].name);
			return at_bad(cmd, -EINVAL, word, value,
				      n ? "one of:%s" : "no further words%s",
				      list);
		}
		if (seen & BIT(i))
			return at_bad(cmd, -EINVAL, word, value,
				      "each word once");
		seen |= BIT(i);
		ret = at_parse_value(cmd, &words[i], value);
		if (ret)
			return ret;
		if (words[i].given)
			*words[i].given = true;
	}
	for (i = 0; i < n; i++)
		if (words[i].required && !(seen & BIT(i)))
			return at_bad(cmd, -EINVAL, words[i].name, "",
				      "this word must be given");
	return 0;
}

static const char * const at_off_on[] = { "off", "on", NULL };
static const char * const at_accept_reject[] = { "accept", "reject", NULL };
static const char * const at_dirs[] = { "both", "out", "in", NULL };
/* In the order of their attribute ids, as apm_cm counts them */
static const char * const at_kinds[] = {
	"REQ", "MRA", "REJ", "REP", "RTU", "DREQ", "DREP", "SIDR_REQ",
	"SIDR_REP", "LAP", "APR", NULL
};
static const char * const at_ops[] = { "send", "write", "read", NULL };

static void at_defaults(struct at_cmd *cmd)
{
	cmd->p.timeout = 14;
	cmd->p.retry = 7;
	cmd->p.rnr = 7;
	cmd->p.size = 4096;
	cmd->p.depth = 16;
	cmd->p.cmtimeout = 18;
	cmd->p.cmretries = 7;
	cmd->bench.size = AT_BENCH_BYTES;
	cmd->bench.count = 64;
	cmd->au.lap = -1;
	cmd->au.rearm = -1;
	cmd->au.migrate = -1;
	cmd->au.notify = -1;
	cmd->au.apr = -1;
	cmd->lose.count = 1;
}

/* The first word of text, cut off; rest is moved behind it. */
static char *at_first(char **text)
{
	char *word;

	*text = skip_spaces(*text);
	word = strsep(text, " \t\n");
	if (!*text)
		*text = word + strlen(word);
	return word;
}

int at_cmd_parse(char *text, struct at_cmd *cmd)
{
	char *verb;
	int ret;

	at_defaults(cmd);
	verb = at_first(&text);

	if (!strcmp(verb, "listen")) {
		const struct at_word words[] = {
			{ "service", ATV_U64, 1, U64_MAX, &cmd->p.service,
			  .required = true },
			{ "dev", ATV_NAME, 0, sizeof(cmd->p.dev), cmd->p.dev },
			{ "size", ATV_U32, AT_MSG_MIN, AT_MSG_MAX,
			  &cmd->p.size },
			{ "depth", ATV_U32, 1, AT_DEPTH_MAX, &cmd->p.depth },
		};

		cmd->verb = AT_CMD_LISTEN;
		return at_parse_words(cmd, text, words, ARRAY_SIZE(words));
	}
	if (!strcmp(verb, "connect")) {
		const struct at_word words[] = {
			{ "service", ATV_U64, 1, U64_MAX, &cmd->p.service,
			  .required = true },
			{ "primary", ATV_RAIL, .dst = &cmd->p.rail[0],
			  .required = true },
			{ "alternate", ATV_RAIL, .dst = &cmd->p.rail[1] },
			{ "dev", ATV_NAME, 0, sizeof(cmd->p.dev), cmd->p.dev },
			{ "timeout", ATV_U32, 1, 31, &cmd->p.timeout },
			{ "retry", ATV_U32, 0, 7, &cmd->p.retry },
			{ "rnr", ATV_U32, 0, 7, &cmd->p.rnr },
			{ "size", ATV_U32, AT_MSG_MIN, AT_MSG_MAX,
			  &cmd->p.size },
			{ "depth", ATV_U32, 1, AT_DEPTH_MAX, &cmd->p.depth },
			{ "cmtimeout", ATV_U32, 8, 24, &cmd->p.cmtimeout },
			{ "cmretries", ATV_U32, 0, 15, &cmd->p.cmretries },
		};

		cmd->verb = AT_CMD_CONNECT;
		return at_parse_words(cmd, text, words, ARRAY_SIZE(words));
	}
	if (!strcmp(verb, "traffic")) {
		char *what = at_first(&text);
		s8 dir = AT_DIR_BOTH, op = AT_OP_SEND;
		const struct at_word words[] = {
			{ "rate", ATV_RATE, 1, AT_RATE_MAX,
			  &cmd->traffic.rate },
			{ "dir", ATV_CHOICE, .dst = &dir, .choices = at_dirs,
			  .expected = "both, out or in" },
			{ "op", ATV_CHOICE, .dst = &op, .choices = at_ops,
			  .expected = "send, write or read" },
			{ "count", ATV_U64, 1, S64_MAX, &cmd->traffic.count },
		};

		if (!strcmp(what, "stop")) {
			cmd->verb = AT_CMD_TRAFFIC_STOP;
			return at_parse_words(cmd, text, NULL, 0);
		}
		if (strcmp(what, "start"))
			return at_bad(cmd, -EINVAL, "traffic", what,
				      "start or stop");
		cmd->verb = AT_CMD_TRAFFIC_START;
		ret = at_parse_words(cmd, text, words, ARRAY_SIZE(words));
		cmd->traffic.dir = dir;
		cmd->traffic.op = op;
		return ret;
	}
	if (!strcmp(verb, "lap")) {
		const struct at_word words[] = {
			{ "port", ATV_U32, 1, 255, &cmd->lap.port,
			  .given = &cmd->lap.port_given },
			{ "dgid", ATV_GID, .dst = &cmd->lap.dgid,
			  .given = &cmd->lap.dgid_given },
		};

		cmd->verb = AT_CMD_LAP;
		ret = at_parse_words(cmd, text, words, ARRAY_SIZE(words));
		if (!ret && cmd->lap.port_given != cmd->lap.dgid_given)
			return at_bad(cmd, -EINVAL, "lap", "",
				      "port and dgid together, or neither");
		return ret;
	}
	if (!strcmp(verb, "auto")) {
		const struct at_word words[] = {
			{ "lap", ATV_CHOICE, .dst = &cmd->au.lap,
			  .choices = at_off_on, .expected = "on or off" },
			{ "rearm", ATV_CHOICE, .dst = &cmd->au.rearm,
			  .choices = at_off_on, .expected = "on or off" },
			{ "migrate", ATV_CHOICE, .dst = &cmd->au.migrate,
			  .choices = at_off_on, .expected = "on or off" },
			{ "notify", ATV_CHOICE, .dst = &cmd->au.notify,
			  .choices = at_off_on, .expected = "on or off" },
			{ "apr", ATV_CHOICE, .dst = &cmd->au.apr,
			  .choices = at_accept_reject,
			  .expected = "accept or reject" },
			{ "mra", ATV_U32, 0, AT_MRA_MS_MAX, &cmd->au.mra,
			  .given = &cmd->au.mra_given },
		};

		cmd->verb = AT_CMD_AUTO;
		return at_parse_words(cmd, text, words, ARRAY_SIZE(words));
	}
	if (!strcmp(verb, "bench")) {
		char *what = at_first(&text);
		const struct at_word words[] = {
			{ "size", ATV_U32, 1, AT_BENCH_BYTES,
			  &cmd->bench.size },
			{ "count", ATV_U32, 1, AT_BENCH_COUNT_MAX,
			  &cmd->bench.count },
		};

		if (strcmp(what, "write"))
			return at_bad(cmd, -EINVAL, "bench", what, "write");
		cmd->verb = AT_CMD_BENCH_WRITE;
		return at_parse_words(cmd, text, words, ARRAY_SIZE(words));
	}
	if (!strcmp(verb, "lose")) {
		const struct at_word words[] = {
			{ "kind", ATV_CHOICE, .dst = &cmd->lose.kind,
			  .choices = at_kinds, .required = true,
			  .expected = "REQ, MRA, REJ, REP, RTU, DREQ, DREP, LAP or APR" },
			{ "count", ATV_U32, 0, AT_LOSE_MAX,
			  &cmd->lose.count },
		};

		cmd->verb = AT_CMD_LOSE;
		return at_parse_words(cmd, text, words, ARRAY_SIZE(words));
	}
	if (!strcmp(verb, "mark")) {
		cmd->verb = AT_CMD_MARK;
		strscpy(cmd->mark, skip_spaces(text), sizeof(cmd->mark));
		return 0;
	}
	if (!strcmp(verb, "migrate"))
		cmd->verb = AT_CMD_MIGRATE;
	else if (!strcmp(verb, "rearm"))
		cmd->verb = AT_CMD_REARM;
	else if (!strcmp(verb, "disconnect"))
		cmd->verb = AT_CMD_DISCONNECT;
	else if (!strcmp(verb, "reset"))
		cmd->verb = AT_CMD_RESET;
	else
		return at_bad(cmd, -EINVAL, verb, "",
			      "listen, connect, traffic, lap, auto, migrate, rearm, bench, lose, mark, disconnect or reset");
	return at_parse_words(cmd, text, NULL, 0);
}
