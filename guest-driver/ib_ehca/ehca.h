/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Verbs driver for the IBM eHCA InfiniBand adapter: objects and the
 * functions its files share.
 *
 * Theory of operation
 * -------------------
 *
 * The adapter is reached in three ways ("doc N" is a section of the
 * interface reference, the numbers are in ehca_abi.h):
 *
 *  - hypervisor calls create, change and free objects (hcall.c);
 *  - each CQ and QP has a 4 KiB page of big-endian registers, for doorbells
 *    and for arming (doc 12);
 *  - queues in our memory carry work requests to the adapter and completions
 *    and events back (doc 13).  The adapter says how many 4 KiB pages a
 *    queue has; we allocate them and register them one by one (queue.c).
 *
 * Objects are found again by tokens, small numbers which we give the adapter
 * when we create a CQ or QP and which its events and completions carry.
 *
 * Events.  One event queue (EQ) serves all CQs and QPs; a tasklet reads it
 * and calls the consumers' handlers.  A second one (NEQ) brings port events;
 * a work item reads it, as it must sleep in hypervisor calls (eq.c, port.c).
 *
 * Flushing.  The adapter writes one error completion and stops (doc 20.1).
 * All further "flushed" completions are made here, see flush.c.
 *
 * Memory.  The ib_device has no DMA device, so consumers' DMA addresses are
 * kernel virtual addresses.  One memory region made at probe, the max-MR,
 * covers all RAM and starts at PAGE_OFFSET, so that such an address is an
 * I/O address as it is.  Each DMA MR shares its pages (mr.c).
 *
 * Locks, outermost first:
 *	qp->mutex	modify of one QP
 *	cq->lock	consumer side: poll, and the tails of the work queues
 *			that complete into this CQ
 *	qp->err_lock	entering ERR and SQE, against RESET and destroy
 *	cq->flush_lock	membership of work queues in cq->flush_list
 *	wq->lock	producer side: posting
 *	srq->lock	slots of a shared receive queue
 *	dev->kick_lock	CQs whose handler is to be called by software
 */
#ifndef EHCA_H
#define EHCA_H

#include <linux/types.h>
#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/idr.h>
#include <linux/interrupt.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <asm/io.h>
#include <rdma/ib_verbs.h>
#include <rdma/ib_umem.h>

#include "ehca_abi.h"
#include "compat.h"

#define EHCA_DRV_NAME		"ib_ehca"

/* Largest queue we accept from the adapter, in 4 KiB pages */
#define EHCA_MAX_QUEUE_PAGES	0x10000
/* EQEs handled in one run of the tasklet */
#define EHCA_EQ_BUDGET		512
/* Interval of the look for lost interrupts, and of polling without one */
#define EHCA_EQ_WATCH_MS	1000
#define EHCA_EQ_POLL_MS		10
#define EHCA_CQ_LIMIT		65535
/* Consumed CQEs are returned so many at a time, less than the spare ones */
#define EHCA_CQ_RETURN_BATCH	16
#define EHCA_QP_LIMIT		65535

struct ehca_dev;
struct ehca_qp;

/* Queue memory: contiguous for us, 4 KiB pages for the adapter */
struct ehca_queue {
	void *va;
	u64 *page;		/* real address of each 4 KiB page */
	u32 pages;
};

/* What the adapter told about a port; compared on configuration changes */
struct ehca_port_cfg {
	u16 lid;
	u16 sm_lid;
	u8 lmc;
	u8 sm_sl;
	u16 pkey_len;
	u16 pkey[EHCA_PORTCB_MAX_PKEYS];
	u8 link_mult;		/* width times speed, in 2.5 Gb/s */
	u8 mtu;			/* code */
};

/* Counters of H_GET_PERF_COUNT in block order, then software's */
#define EHCA_PERF_NR \
	((EHCA_PERF_SIZE - EHCA_PERF_SYMBOL_ERROR) / 8)
#define EHCA_PERF_IDX(off)	(((off) - EHCA_PERF_SYMBOL_ERROR) / 8)

struct ehca_port {
	struct ehca_dev *dev;
	u8 num;
	bool active;		/* last NEQ availability event */
	wait_queue_head_t active_wait;
	spinlock_t cfg_lock;	/* cfg */
	struct ehca_port_cfg cfg;
	struct mutex special_lock;	/* smi, gsi, pma_qpn */
	struct ehca_qp *smi;
	struct ehca_qp *gsi;
	u32 pma_qpn;
	struct mutex perf_lock;	/* perf_base */
	u64 perf_base[EHCA_PERF_NR];	/* counter values at the last clear */
};

struct ehca_eq {
	const char *name;
	u64 handle;
	struct ehca_queue q;
	u32 entries;
	u32 idx;
	bool toggle;		/* value of the valid bit we wait for */
	u32 ist;
	unsigned int virq;	/* 0: none, we poll */
	bool have_irq;
	char irq_name[40];
	atomic_long_t irqs;
	unsigned long watch_irqs;	/* irqs at the last look */
	u32 watch_idx;
	u64 eqes;
	u64 lost_irqs;
};

/* Events counted for debugfs, by name; see ehca_stat_names */
enum ehca_stat {
	EHCA_STAT_EQ_COMPLETION,
	EHCA_STAT_PATH_MIG,
	EHCA_STAT_PATH_MIG_FILTERED,
	EHCA_STAT_PATH_MIG_ERR,
	EHCA_STAT_COMM_EST,
	EHCA_STAT_SQ_DRAINED,
	EHCA_STAT_QP_FATAL,
	EHCA_STAT_CQ_ERR,
	EHCA_STAT_SRQ_LIMIT,
	EHCA_STAT_SRQ_ERR,
	EHCA_STAT_EQ_OTHER,
	EHCA_STAT_EQ_UNKNOWN_TOKEN,
	EHCA_STAT_PORT_ACTIVE,
	EHCA_STAT_PORT_ERR,
	EHCA_STAT_LID_CHANGE,
	EHCA_STAT_PKEY_CHANGE,
	EHCA_STAT_SM_CHANGE,
	EHCA_STAT_CLIENT_REREGISTER,
	EHCA_STAT_NEQ_OTHER,
	EHCA_STAT_CQE_ERROR,
	EHCA_STAT_CQE_STALE,
	EHCA_STAT_CQE_PURGED,
	EHCA_STAT_FLUSHED,
	EHCA_STAT_HCALL_BUSY,
	EHCA_STAT_HCALL_FAILED,
	EHCA_STAT_NR,
};

struct ehca_limits {
	u32 max_qp, max_cq, max_mr, max_mw, max_pd, max_ah;
	u32 max_cqe, max_wr, max_sge, max_sge_rd;
	u32 max_mcast_grp, max_mcast_attach, max_total_mcast_attach;
	u32 max_rd_atomic_resp, max_rd_atomic_init, max_rd_atomic_hca;
	u32 max_partitions;
	u32 vendor_id, vendor_part_id, hw_ver;
	u64 max_mr_size;
	u8 ack_delay;
};

struct ehca_dev {
	struct ib_device ibdev;
	struct platform_device *pdev;
	u64 handle;
	bool live;		/* events may go to the core */
	u64 caps;		/* EHCA_CAP_* */
	u32 pgsizes;		/* EHCA_PGSIZE_SUP_* */
	__be64 node_guid;
	struct ehca_limits lim;

	spinlock_t hcall_lock;	/* taken if EHCA_CAP_H_ALLOC_RES_SYNC lacks */

	struct ehca_eq eq;
	struct tasklet_struct eq_tasklet;
	int eq_int_pending;	/* interrupt whose state is not taken up */
	void *err_block;	/* H_ERROR_DATA, EQ tasklet only */
	struct ehca_eq neq;
	struct work_struct neq_work;
	struct workqueue_struct *wq;
	struct delayed_work watch;

	spinlock_t kick_lock;	/* kick_list */
	struct list_head kick_list;

	struct xarray cqs;	/* by token */
	struct xarray qps;	/* by token */
	struct xarray srqs;	/* by token, given out together with QPs' */
	u32 cq_next, qp_next;
	atomic_t nr_cqs, nr_qps;
	struct ida pd_ida;

	u64 max_mr_handle;
	u64 max_mr_size;
	u32 max_mr_pgcode;
	struct page *hole;	/* stands for addresses without RAM */
	unsigned int hole_order;
	u32 max_mr_pd;

	u8 num_ports;
	struct ehca_port port[EHCA_MAX_PORTS];

	atomic64_t stat[EHCA_STAT_NR];
	struct dentry *debugfs;
};

struct ehca_pd {
	struct ib_pd ibpd;
	u32 value;
};

struct ehca_ah {
	struct ib_ah ibah;
	struct rdma_ah_attr attr;
	u8 av[EHCA_AV_SIZE];
};

struct ehca_mr {
	struct ib_mr ibmr;
	u64 handle;
	struct ib_umem *umem;
};

struct ehca_cq {
	struct ib_cq ibcq;
	struct ehca_dev *dev;
	u64 handle;
	u32 token;
	void __iomem *regs;
	struct ehca_queue q;
	u32 entries;

	spinlock_t lock;		/* consumer side, see above */
	u32 idx;
	bool toggle;
	u32 unreturned;			/* consumed, adapter not told yet */

	spinlock_t flush_lock;		/* flush_list, queues' flush fields */
	struct list_head flush_list;	/* struct ehca_wq.flush_entry */

	bool armed;			/* consumer waits for its handler */
	struct list_head kick_entry;	/* dev->kick_list */

	refcount_t ref;
	struct completion free;
};

#define EHCA_SLOT_SIGNALED	0x01	/* completes also if it succeeds */
#define EHCA_SLOT_FLUSH		0x02	/* to be flushed (flush.c) */

/* What we remember of a posted work request */
struct ehca_slot {
	u64 wr_id;
	u8 opcode;		/* enum ib_wc_opcode */
	u8 flags;
};

/*
 * A send or receive queue.  head and tail count work requests since RESET
 * and never wrap; the _idx are their places in the ring.  The requests from
 * tail to head have no completion yet.
 */
struct ehca_wq {
	struct ehca_qp *qp;
	struct ehca_cq *cq;
	bool is_send;
	struct ehca_queue q;
	u32 nr;			/* WQEs in the ring */
	u32 stride;
	u32 max_post;		/* outstanding WRs, less than nr */
	u32 max_sge;
	struct ehca_slot *slot;

	spinlock_t lock;		/* producer side: down to epoch */
	u64 head;
	u32 head_idx;
	u16 epoch;		/* counts RESETs; old completions differ */
	bool flush_open;	/* posted WRs are flushed; flush_lock too */

	/* cq->lock */
	u64 tail;
	u32 tail_idx;

	/* cq->flush_lock */
	struct list_head flush_entry;
	bool flushing;
	u64 flush_from;		/* first WR without a hardware completion */
	u32 flush_marked;	/* slots with EHCA_SLOT_FLUSH */
	u64 recovered;		/* head at the last SQE to RTS */
};

struct ehca_srq {
	struct ib_srq ibsrq;
	struct ehca_dev *dev;
	u64 handle;
	u32 token;
	u32 real_qpn;
	void __iomem *regs;
	struct ehca_queue q;
	u32 nr;			/* WQEs in the ring */
	u32 stride;
	u32 max_post;
	spinlock_t lock;	/* the fields below */
	struct ehca_slot *slot;
	u32 head_idx;
	u32 posted;		/* without completion */
	refcount_t ref;
	struct completion free;
};

struct ehca_qp {
	struct ib_qp ibqp;
	struct ehca_dev *dev;
	u64 handle;
	u32 token;
	u32 real_qpn;		/* the adapter's, also for SMI and GSI */
	void __iomem *regs;
	struct mutex mutex;	/* one modify at a time */
	spinlock_t err_lock;	/* state's changes to ERR, SQE and RESET */
	enum ib_qp_state state;	/* as far as software knows */
	u8 port;
	u32 qkey;
	bool sq_sig_all;
	bool rearmed;		/* PATH_MIG_STATE was ever set to REARM */
	bool alt_loaded;	/* an alternate path was loaded */
	bool sqd_notify;
	bool smp_ok;		/* QP0 may send to QP0 */
	struct ehca_srq *srq;	/* then rq is empty */
	bool err_wanted;	/* software moved it to ERR */
	bool dying;		/* no completion of it is passed on */
	struct ehca_wq sq;
	struct ehca_wq rq;
	atomic_t ev_path_mig, ev_path_mig_filtered, ev_path_mig_err;
	atomic_t ev_comm_est, ev_sq_drained, ev_fatal;
	refcount_t ref;
	struct completion free;
};

static inline struct ehca_dev *to_edev(struct ib_device *ibdev)
{
	return container_of(ibdev, struct ehca_dev, ibdev);
}

static inline struct ehca_pd *to_epd(struct ib_pd *ibpd)
{
	return container_of(ibpd, struct ehca_pd, ibpd);
}

static inline struct ehca_ah *to_eah(struct ib_ah *ibah)
{
	return container_of(ibah, struct ehca_ah, ibah);
}

static inline struct ehca_mr *to_emr(struct ib_mr *ibmr)
{
	return container_of(ibmr, struct ehca_mr, ibmr);
}

static inline struct ehca_cq *to_ecq(struct ib_cq *ibcq)
{
	return container_of(ibcq, struct ehca_cq, ibcq);
}

static inline struct ehca_qp *to_eqp(struct ib_qp *ibqp)
{
	return container_of(ibqp, struct ehca_qp, ibqp);
}

static inline struct ehca_srq *to_esrq(struct ib_srq *ibsrq)
{
	return container_of(ibsrq, struct ehca_srq, ibsrq);
}

static inline void ehca_stat(struct ehca_dev *dev, enum ehca_stat stat)
{
	atomic64_inc(&dev->stat[stat]);
}

/* Port structure, or NULL for a number the adapter does not have */
static inline struct ehca_port *ehca_port(struct ehca_dev *dev, u32 num)
{
	return num >= 1 && num <= dev->num_ports ? &dev->port[num - 1] : NULL;
}

/* Fields of control blocks, queue entries and the like */
static inline u32 get32(const void *block, unsigned int off)
{
	return get_unaligned_be32(block + off);
}

static inline u64 get64(const void *block, unsigned int off)
{
	return get_unaligned_be64(block + off);
}

static inline u16 get16(const void *block, unsigned int off)
{
	return get_unaligned_be16(block + off);
}

static inline void put32(void *block, unsigned int off, u32 val)
{
	put_unaligned_be32(val, block + off);
}

static inline void put64(void *block, unsigned int off, u64 val)
{
	put_unaligned_be64(val, block + off);
}

static inline void put16(void *block, unsigned int off, u16 val)
{
	put_unaligned_be16(val, block + off);
}

static inline void put8(void *block, unsigned int off, u8 val)
{
	*((u8 *)block + off) = val;
}

static inline u8 get8(const void *block, unsigned int off)
{
	return *((const u8 *)block + off);
}

/* Register pages: 8-byte big-endian accesses, ordered after memory stores */
static inline void ehca_reg_write(void __iomem *regs, unsigned int off,
				  u64 val)
{
	out_be64(regs + off, val);
}

static inline u64 ehca_reg_read(void __iomem *regs, unsigned int off)
{
	return in_be64(regs + off);
}

/* hcall.c */
#define EHCA_CALL_ATOMIC	0x1	/* may not sleep */
#define EHCA_CALL_QUIET		0x2	/* the caller explains failures */

/* in[n] is register r(5+n); r4 is always the adapter. out[n] is r(4+n). */
struct ehca_call {
	u64 in[8];
	unsigned long out[9];
};

long ehca_hcall(struct ehca_dev *dev, unsigned long op,
		struct ehca_call *call, unsigned int flags);
int ehca_rc_to_errno(long rc);
const char *ehca_rc_str(long rc);
long ehca_h_free(struct ehca_dev *dev, u64 handle, bool force);
long ehca_h_register_page(struct ehca_dev *dev, u64 handle, u32 qtype,
			  u32 pgcode, u64 addr, u32 count);
long ehca_h_query_hca(struct ehca_dev *dev, void *block);
long ehca_h_query_port(struct ehca_dev *dev, u8 port, void *block);
long ehca_h_query_qp(struct ehca_dev *dev, u64 handle, void *block,
		     unsigned int flags);
long ehca_h_modify_qp(struct ehca_dev *dev, u64 handle, u64 mask,
		      const void *block);
long ehca_h_error_data(struct ehca_dev *dev, u64 handle, void *block);
long ehca_h_getc(struct ehca_dev *dev, u64 handle, u32 function,
		 u64 *sq_addr, u64 *rq_addr, unsigned int flags);

/* queue.c */
int ehca_queue_alloc(struct ehca_dev *dev, struct ehca_queue *q, u64 pages);
void ehca_queue_free(struct ehca_queue *q);
int ehca_queue_register(struct ehca_dev *dev, struct ehca_queue *q,
			u64 handle, u32 qtype, bool completes);
int ehca_queue_offset(const struct ehca_queue *q, u64 addr);

/* eq.c */
int ehca_eqs_create(struct ehca_dev *dev);
void ehca_eqs_stop_neq(struct ehca_dev *dev);
void ehca_eqs_destroy(struct ehca_dev *dev);
void ehca_cq_kick(struct ehca_cq *cq);
void ehca_event(struct ehca_dev *dev, enum ib_event_type type, u8 port);

/* port.c */
int ehca_port_init(struct ehca_dev *dev, u8 num);
void ehca_port_neqe(struct ehca_dev *dev, u64 neqe);
int ehca_port_wait_active(struct ehca_port *port, unsigned int seconds);
void ehca_port_get_cfg(struct ehca_port *port, struct ehca_port_cfg *cfg);
u8 ehca_port_ipd(struct ehca_port *port, u8 static_rate);
u8 ehca_port_rate(struct ehca_port *port, u32 ipd);
int ehca_query_port(struct ib_device *ibdev, u32 num,
		    struct ib_port_attr *attr);
int ehca_modify_port(struct ib_device *ibdev, u32 num, int mask,
		     struct ib_port_modify *props);
int ehca_query_gid(struct ib_device *ibdev, u32 num, int index,
		   union ib_gid *gid);
int ehca_query_pkey(struct ib_device *ibdev, u32 num, u16 index, u16 *pkey);
int ehca_get_port_immutable(struct ib_device *ibdev, u32 num,
			    struct ib_port_immutable *imm);

/* mad.c */
int ehca_process_mad(struct ib_device *ibdev, int flags, u32 port_num,
		     const struct ib_wc *in_wc, const struct ib_grh *in_grh,
		     const struct ib_mad *in, struct ib_mad *out,
		     size_t *out_size, u16 *out_pkey_index);

/* pd.c: protection domains, address handles, multicast */
int ehca_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata);
int ehca_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata);
int ehca_create_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *init,
		   struct ib_udata *udata);
int ehca_query_ah(struct ib_ah *ibah, struct rdma_ah_attr *attr);
int ehca_destroy_ah(struct ib_ah *ibah, u32 flags);
int ehca_attach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid);
int ehca_detach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid);

/* mr.c */
int ehca_max_mr_create(struct ehca_dev *dev);
void ehca_max_mr_destroy(struct ehca_dev *dev);
struct ib_mr *ehca_get_dma_mr(struct ib_pd *ibpd, int access);
struct ib_mr *ehca_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length,
			       u64 virt, int access, struct ib_udata *udata);
int ehca_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata);

/* cq.c */
int ehca_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		   struct ehca_create_cq_attrs *attrs);
int ehca_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata);
int ehca_poll_cq(struct ib_cq *ibcq, int num, struct ib_wc *wc);
int ehca_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags);
struct ehca_cq *ehca_cq_get(struct ehca_dev *dev, u32 token);
void ehca_cq_put(struct ehca_cq *cq);
void ehca_cq_complete(struct ehca_cq *cq);
void ehca_cq_clean(struct ehca_cq *cq, struct ehca_qp *qp);

/* qp.c */
extern unsigned int ehca_port_act_wait;
int ehca_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *init,
		   struct ib_udata *udata);
int ehca_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		   struct ib_udata *udata);
int ehca_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		  struct ib_qp_init_attr *init);
int ehca_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata);
struct ehca_qp *ehca_qp_get(struct ehca_dev *dev, u32 token);
void ehca_qp_put(struct ehca_qp *qp);
void ehca_qp_eqe(struct ehca_dev *dev, u32 id, u32 token);
bool ehca_qp_is_ud(const struct ehca_qp *qp);
bool ehca_sges_ok(u32 sges, u32 wanted);

/* srq.c */
int ehca_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *init,
		    struct ib_udata *udata);
int ehca_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr,
		    enum ib_srq_attr_mask mask, struct ib_udata *udata);
int ehca_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr);
int ehca_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata);
struct ehca_srq *ehca_srq_get(struct ehca_dev *dev, u32 token);
void ehca_srq_put(struct ehca_srq *srq);
void ehca_srq_eqe(struct ehca_dev *dev, u32 id, u32 token);
bool ehca_srq_complete(struct ehca_srq *srq, u64 id, u64 *wr_id);
int ehca_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr,
		       const struct ib_recv_wr **bad_wr);

/* wr.c */
void ehca_wqe_sges(void *wqe, unsigned int off, const struct ib_sge *sge,
		   int num);
int ehca_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr,
		   const struct ib_send_wr **bad_wr);
int ehca_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr,
		   const struct ib_recv_wr **bad_wr);

/* flush.c */
void ehca_qp_enter_err(struct ehca_qp *qp, bool was_sqe);
void ehca_qp_found_err(struct ehca_qp *qp, u16 epoch);
void ehca_qp_found_sqe(struct ehca_qp *qp);
void ehca_qp_begin_reset(struct ehca_qp *qp);
int ehca_qp_sqe_purge(struct ehca_qp *qp, u64 *from);
void ehca_qp_sqe_done(struct ehca_qp *qp, u64 from);
void ehca_wq_reset(struct ehca_wq *wq);
int ehca_flush_poll(struct ehca_cq *cq, int num, struct ib_wc *wc,
		    bool drained);
bool ehca_flush_pending(struct ehca_cq *cq, bool drained);

/* debugfs.c */
void ehca_debugfs_init(void);
void ehca_debugfs_exit(void);
void ehca_debugfs_add(struct ehca_dev *dev);
void ehca_debugfs_del(struct ehca_dev *dev);

/* main.c */
void ehca_get_fw_str(struct ib_device *ibdev, char *str);

#endif /* EHCA_H */
