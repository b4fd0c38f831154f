// SPDX-License-Identifier: GPL-2.0
/*
 * apm_traffic events: a bounded ring of JSON lines, written from any context,
 * read by any number of readers through /dev/apm_traffic, each from the first.
 */
#include <linux/fs.h>
#include <linux/ktime.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "at.h"

struct at_line {
	u16 len;
	char text[AT_EVENT_TEXT];
};

struct at_reader {
	struct mutex lock;		/* the fields below */
	u64 next;			/* sequence number */
	u32 len, pos;			/* of the line being handed out */
	char text[AT_EVENT_TEXT];
};

static DEFINE_SPINLOCK(at_ring_lock);
static struct at_line *at_ring;
static u64 at_last;			/* newest sequence number, 0 none */
static DECLARE_WAIT_QUEUE_HEAD(at_ring_wait);

int at_event_init(void)
{
	at_ring = vzalloc(array_size(AT_EVENTS, sizeof(*at_ring)));
	return at_ring ? 0 : -ENOMEM;
}

void at_event_exit(void)
{
	vfree(at_ring);
}

void at_now(struct at_time *t)
{
	t->real_ns = ktime_get_real_ns();
	t->ns = ktime_get_ns();
}

const char *at_json(char *dst, size_t size, const char *src)
{
	size_t n = 0;

	for (; *src && n + 3 < size; src++) {
		if (*src == '"' || *src == '\\') {
			dst[n++] = '\\';
			dst[n++] = *src;
		} else if ((unsigned char)*src < 0x20 ||
			   (unsigned char)*src >= 0x7f) {
			dst[n++] = '?';
		} else {
			dst[n++] = *src;
		}
	}
	dst[n] = 0;
	return dst;
}

__printf(3, 0)
static void at_event_v(const struct at_time *t, const char *name,
		       const char *fmt, va_list args)
{
	struct at_line *line;
	unsigned long flags;
	int n;

	spin_lock_irqsave(&at_ring_lock, flags);
	at_last++;
	line = &at_ring[at_last % AT_EVENTS];
	n = scnprintf(line->text, sizeof(line->text),
		      "{\"seq\":%llu,\"t_real_ns\":%llu,\"t_ns\":%llu,\"event\":\"%s\"",
		      at_last, t->real_ns, t->ns, name);
	if (fmt && *fmt) {
		line->text[n++] = ',';
		n += vscnprintf(line->text + n, sizeof(line->text) - n, fmt,
				args);
	}
	/* No event comes near the limit; if one did, say so and stay JSON. */
	if (n > (int)sizeof(line->text) - 3)
		n = scnprintf(line->text, sizeof(line->text),
			      "{\"seq\":%llu,\"t_real_ns\":%llu,\"t_ns\":%llu,\"event\":\"%s\",\"truncated\":1",
			      at_last, t->real_ns, t->ns, name);
	line->text[n++] = '}';
	line->text[n++] = '\n';
	line->len = n;
	spin_unlock_irqrestore(&at_ring_lock, flags);
	wake_up_interruptible(&at_ring_wait);
}

void at_event_at(const struct at_time *t, const char *name,
		 const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	at_event_v(t, name, fmt, args);
	va_end(args);
}

void at_event(const char *name, const char *fmt, ...)
{
	struct at_time t;
	va_list args;

	at_now(&t);
	va_start(args, fmt);
	at_event_v(&t, name, fmt, args);
	va_end(args);
}

static bool at_reader_ready(struct at_reader *r)
{
	return r->pos < r->len || READ_ONCE(at_last) >= READ_ONCE(r->next);
}

/* The next line into the reader's buffer; false if there is none. */
static bool at_reader_fetch(struct at_reader *r)
{
	unsigned long flags;
	u64 oldest;
	bool got = true;

	spin_lock_irqsave(&at_ring_lock, flags);
	oldest = at_last > AT_EVENTS ? at_last - AT_EVENTS + 1 : 1;
	r->pos = 0;
	if (r->next < oldest) {
		r->len = scnprintf(r->text, sizeof(r->text),
				   "{\"event\":\"events_lost\",\"count\":%llu}\n",
				   oldest - r->next);
		r->next = oldest;
	} else if (r->next <= at_last) {
		struct at_line *line = &at_ring[r->next % AT_EVENTS];

		r->len = line->len;
		memcpy(r->text, line->text, line->len);
		r->next++;
	} else {
		r->len = 0;
		got = false;
	}
	spin_unlock_irqrestore(&at_ring_lock, flags);
	return got;
}

static int at_open(struct inode *inode, struct file *file)
{
	struct at_reader *r = kzalloc(sizeof(*r), GFP_KERNEL);

	if (!r)
		return -ENOMEM;
	mutex_init(&r->lock);
	r->next = 1;
	file->private_data = r;
	return 0;
}

static int at_release(struct inode *inode, struct file *file)
{
	kfree(file->private_data);
	return 0;
}

static ssize_t at_read(struct file *file, char __user *buf, size_t size,
		       loff_t *pos)
{
	struct at_reader *r = file->private_data;
	size_t done = 0;
	int ret;

	if (!size)
		return 0;
	ret = mutex_lock_interruptible(&r->lock);
	if (ret)
		return ret;
	while (done < size) {
		size_t n;

		if (r->pos == r->len && !at_reader_fetch(r)) {
			if (done)
				break;
			mutex_unlock(&r->lock);
			if (file->f_flags & O_NONBLOCK)
				return -EAGAIN;
			ret = wait_event_interruptible(at_ring_wait,
						       at_reader_ready(r));
			if (ret)
				return ret;
			ret = mutex_lock_interruptible(&r->lock);
			if (ret)
				return ret;
			continue;
		}
		n = min_t(size_t, r->len - r->pos, size - done);
		if (copy_to_user(buf + done, r->text + r->pos, n)) {
			ret = -EFAULT;
			break;
		}
		r->pos += n;
		done += n;
	}
	mutex_unlock(&r->lock);
	return done ? done : ret;
}

static __poll_t at_poll(struct file *file, poll_table *wait)
{
	struct at_reader *r = file->private_data;

	poll_wait(file, &at_ring_wait, wait);
	return EPOLLOUT | EPOLLWRNORM |
	       (at_reader_ready(r) ? EPOLLIN | EPOLLRDNORM : 0);
}

/* One command per write. */
static ssize_t at_write(struct file *file, const char __user *buf, size_t size,
			loff_t *pos)
{
	struct at_cmd *cmd;
	char *text, *quoted;
	ssize_t ret;

	if (!size || size > AT_CMD_MAX) {
		at_event("command",
			 "\"cmd\":\"\",\"errno\":%d,\"word\":\"length\",\"value\":\"%zu\",\"expected\":\"1 to %d bytes\"",
			 EINVAL, size, AT_CMD_MAX);
		return -EINVAL;
	}
	text = memdup_user_nul(buf, size);
	if (IS_ERR(text))
		return PTR_ERR(text);
	cmd = kzalloc(sizeof(*cmd), GFP_KERNEL);
	quoted = kmalloc(AT_EVENT_TEXT / 2, GFP_KERNEL);
	if (!cmd || !quoted) {
		ret = -ENOMEM;
		goto out;
	}
	strim(text);
	at_json(quoted, AT_EVENT_TEXT / 2, text);
	ret = at_cmd_parse(text, cmd);
	if (!ret)
		ret = at_control_command(cmd);
	if (ret == 0) {
		at_event("command", "\"cmd\":\"%s\",\"errno\":0", quoted);
		ret = size;
	} else if (cmd->bad_word[0] || cmd->expected[0]) {
		char w[48], v[128];

		at_event("command",
			 "\"cmd\":\"%s\",\"errno\":%d,\"word\":\"%s\",\"value\":\"%s\",\"expected\":\"%s\"",
			 quoted, (int)-ret, at_json(w, sizeof(w), cmd->bad_word),
			 at_json(v, sizeof(v), cmd->bad_value), cmd->expected);
	} else {
		at_event("command", "\"cmd\":\"%s\",\"errno\":%d", quoted,
			 (int)-ret);
	}
out:
	kfree(quoted);
	kfree(cmd);
	kfree(text);
	return ret;
}

const struct file_operations at_fops = {
	.owner = THIS_MODULE,
	.open = at_open,
	.release = at_release,
	.read = at_read,
	.write = at_write,
	.poll = at_poll,
	.llseek = noop_llseek,
};
