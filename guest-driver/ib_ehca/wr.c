// SPDX-License-Identifier: GPL-2.0
/*
 * Posting work requests (doc 13.3, 15, 17.7).
 *
 * A work queue element is written at the ring's head, then the number of
 * new ones goes to the adder register.  The work request id in the WQE is
 * not the consumer's but ring index and epoch; the consumer's is kept in the
 * slot.  If a request in a list is bad, those before it are announced.
 */
#include "ehca.h"

static u64 ehca_wqe_id(const struct ehca_wq *wq)
{
	return (u64)wq->epoch << 16 | wq->head_idx;
}

static void *ehca_wqe_start(struct ehca_wq *wq)
{
	void *wqe = wq->q.va + (size_t)wq->head_idx * wq->stride;

	memset(wqe, 0, EHCA_WQE_CLEAR_SIZE);
	put64(wqe, EHCA_WQE_ID, ehca_wqe_id(wq));
	return wqe;
}

void ehca_wqe_sges(void *wqe, unsigned int off, const struct ib_sge *sge,
		   int num)
{
	int i;

	put8(wqe, EHCA_WQE_NR_SGES, num);
	for (i = 0; i < num; i++, off += EHCA_SGE_SIZE) {
		put64(wqe, off + EHCA_SGE_ADDR, sge[i].addr);
		put32(wqe, off + EHCA_SGE_LKEY, sge[i].lkey);
		put32(wqe, off + EHCA_SGE_LENGTH, sge[i].length);
	}
}

/* wq->lock held */
static bool ehca_wq_full(struct ehca_wq *wq)
{
	return wq->head - READ_ONCE(wq->tail) >= wq->max_post;
}

/* The WQE at the head is complete. */
static void ehca_wq_push(struct ehca_wq *wq, u64 wr_id, u8 opcode,
			 bool signaled)
{
	struct ehca_slot *slot = &wq->slot[wq->head_idx];

	slot->wr_id = wr_id;
	slot->opcode = opcode;
	slot->flags = signaled ? EHCA_SLOT_SIGNALED : 0;
	wq->head_idx = (wq->head_idx + 1) % wq->nr;
	/* the consumer side reads the slot after the head */
	smp_store_release(&wq->head, wq->head + 1);
}

/*
 * Announce @n new WQEs, or let them be flushed if the queue is in error.
 * wq->lock held: adders and flushing must not cross.
 */
static void ehca_wq_ring(struct ehca_wq *wq, unsigned int reg, u32 n)
{
	if (!n)
		return;
	if (wq->flush_open)
		ehca_cq_kick(wq->cq);
	else
		ehca_reg_write(wq->qp->regs, reg, n);
}

static int ehca_send_optype(const struct ib_send_wr *wr, u8 *optype,
			    u8 *wc_opcode, bool *imm)
{
	*imm = false;
	switch (wr->opcode) {
	case IB_WR_SEND_WITH_IMM:
		*imm = true;
		fallthrough;
	case IB_WR_SEND:
		*optype = EHCA_WQE_OPTYPE_SEND;
		*wc_opcode = IB_WC_SEND;
		return 0;
	case IB_WR_RDMA_WRITE_WITH_IMM:
		*imm = true;
		fallthrough;
	case IB_WR_RDMA_WRITE:
		*optype = EHCA_WQE_OPTYPE_RDMA_WRITE;
		*wc_opcode = IB_WC_RDMA_WRITE;
		return 0;
	case IB_WR_RDMA_READ:
		*optype = EHCA_WQE_OPTYPE_RDMA_READ;
		*wc_opcode = IB_WC_RDMA_READ;
		return 0;
	case IB_WR_ATOMIC_CMP_AND_SWP:
		*optype = EHCA_WQE_OPTYPE_CMP_SWAP;
		*wc_opcode = IB_WC_COMP_SWAP;
		return 0;
	case IB_WR_ATOMIC_FETCH_AND_ADD:
		*optype = EHCA_WQE_OPTYPE_FETCH_ADD;
		*wc_opcode = IB_WC_FETCH_ADD;
		return 0;
	default:
		return -EINVAL;
	}
}

/* UD, SMI, GSI: address vector and datagram fields (doc 15.4) */
static int ehca_build_ud(struct ehca_qp *qp, const struct ib_send_wr *wr,
			 void *wqe)
{
	const struct ib_ud_wr *ud = ud_wr(wr);
	enum ib_qp_type type = qp->ibqp.qp_type;
	const struct ehca_ah *ah;

	if (wr->opcode != IB_WR_SEND && wr->opcode != IB_WR_SEND_WITH_IMM)
		return -EINVAL;
	if (!ud->ah || ud->ah->device != qp->ibqp.device ||
	    ud->remote_qpn > EHCA_QPN_MASK)
		return -EINVAL;
	/* SMPs are the firmware's, unless it let us have QP0 */
	if (!ud->remote_qpn && !qp->smp_ok)
		return -EINVAL;

	ah = to_eah(ud->ah);
	put32(wqe, EHCA_WQE_DEST_QPN,
	      ud->remote_qpn << EHCA_WQE_DEST_QPN_SHIFT);
	/* top bit set: the QP's own Q_Key (IBTA 10.2.5) */
	put32(wqe, EHCA_WQE_QKEY, ud->remote_qkey & 0x80000000 ?
	      READ_ONCE(qp->qkey) : ud->remote_qkey);
	memcpy(wqe + EHCA_WQE_AV, ah->av, EHCA_AV_SIZE);
	if (type == IB_QPT_GSI)
		put16(wqe, EHCA_WQE_PKEYI, ud->pkey_index);
	if (type != IB_QPT_UD)
		put8(wqe, EHCA_WQE_AV + EHCA_AV_PMTU, EHCA_MTU_256);
	return 0;
}

/* RC, UC: addresses (doc 15.6) */
static int ehca_build_conn(struct ehca_qp *qp, const struct ib_send_wr *wr,
			   void *wqe)
{
	u64 length = 0;
	int i;

	for (i = 0; i < wr->num_sge; i++)
		length += wr->sg_list[i].length;
	put64(wqe, EHCA_WQE_TOTAL_LEN, length);

	switch (wr->opcode) {
	case IB_WR_RDMA_READ:
		if (qp->ibqp.qp_type != IB_QPT_RC)
			return -EINVAL;
		fallthrough;
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_WRITE_WITH_IMM:
		put64(wqe, EHCA_WQE_RADDR, rdma_wr(wr)->remote_addr);
		put32(wqe, EHCA_WQE_RKEY, rdma_wr(wr)->rkey);
		return 0;
	case IB_WR_ATOMIC_CMP_AND_SWP:
	case IB_WR_ATOMIC_FETCH_AND_ADD:
		if (qp->ibqp.qp_type != IB_QPT_RC ||
		    !(qp->dev->caps & EHCA_CAP_ATOMIC))
			return -EINVAL;
		put64(wqe, EHCA_WQE_RADDR, atomic_wr(wr)->remote_addr);
		put32(wqe, EHCA_WQE_RKEY, atomic_wr(wr)->rkey);
		if (wr->opcode == IB_WR_ATOMIC_CMP_AND_SWP) {
			/* in the order of the wire's AtomicETH */
			put64(wqe, EHCA_WQE_ATOMIC_1, atomic_wr(wr)->swap);
			put64(wqe, EHCA_WQE_ATOMIC_2,
			      atomic_wr(wr)->compare_add);
		} else {
			put64(wqe, EHCA_WQE_ATOMIC_1,
			      atomic_wr(wr)->compare_add);
			put64(wqe, EHCA_WQE_ATOMIC_2, 0);
		}
		return 0;
	default:
		return 0;
	}
}

static int ehca_post_one_send(struct ehca_qp *qp,
			      const struct ib_send_wr *wr)
{
	struct ehca_wq *wq = &qp->sq;
	u8 optype, wc_opcode, flags = 0;
	bool signaled, imm, ud = ehca_qp_is_ud(qp);
	void *wqe;
	int ret;

	if (ehca_wq_full(wq))
		return -ENOMEM;
	if (wr->num_sge < 0 || wr->num_sge > wq->max_sge ||
	    wr->send_flags & IB_SEND_INLINE)
		return -EINVAL;
	ret = ehca_send_optype(wr, &optype, &wc_opcode, &imm);
	if (ret)
		return ret;

	wqe = ehca_wqe_start(wq);
	ret = ud ? ehca_build_ud(qp, wr, wqe) : ehca_build_conn(qp, wr, wqe);
	if (ret)
		return ret;

	signaled = qp->sq_sig_all || wr->send_flags & IB_SEND_SIGNALED;
	if (signaled)
		flags |= EHCA_WQE_FLAG_SIGNALED;
	if (wr->send_flags & IB_SEND_FENCE)
		flags |= EHCA_WQE_FLAG_FENCE;
	if (wr->send_flags & IB_SEND_SOLICITED)
		flags |= EHCA_WQE_FLAG_SOLICITED;
	if (imm) {
		flags |= EHCA_WQE_FLAG_IMM;
		memcpy(wqe + EHCA_WQE_IMM, &wr->ex.imm_data, 4);
	}
	put8(wqe, EHCA_WQE_OPTYPE, optype);
	put8(wqe, EHCA_WQE_FLAGS, flags);
	ehca_wqe_sges(wqe, ud ? EHCA_WQE_UD_SGES : EHCA_WQE_SGES,
		      wr->sg_list, wr->num_sge);
	ehca_wq_push(wq, wr->wr_id, wc_opcode, signaled);
	return 0;
}

int ehca_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr,
		   const struct ib_send_wr **bad_wr)
{
	struct ehca_qp *qp = to_eqp(ibqp);
	struct ehca_wq *wq = &qp->sq;
	unsigned long irqflags;
	u32 n = 0;
	int ret = 0;

	spin_lock_irqsave(&wq->lock, irqflags);
	switch (READ_ONCE(qp->state)) {
	case IB_QPS_RTS:
	case IB_QPS_SQD:
	case IB_QPS_SQE:
	case IB_QPS_ERR:
		break;
	default:
		ret = -EINVAL;
		break;
	}
	for (; wr && !ret; wr = wr->next) {
		ret = ehca_post_one_send(qp, wr);
		if (ret)
			break;
		n++;
	}
	ehca_wq_ring(wq, EHCA_QPX_SQA, n);
	spin_unlock_irqrestore(&wq->lock, irqflags);
	if (ret)
		*bad_wr = wr;
	return ret;
}

int ehca_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr,
		   const struct ib_recv_wr **bad_wr)
{
	struct ehca_qp *qp = to_eqp(ibqp);
	struct ehca_wq *wq = &qp->rq;
	unsigned long irqflags;
	u32 n = 0;
	int ret = 0;
	void *wqe;

	spin_lock_irqsave(&wq->lock, irqflags);
	if (READ_ONCE(qp->state) == IB_QPS_RESET || qp->srq)
		ret = -EINVAL;
	for (; wr && !ret; wr = wr->next) {
		if (ehca_wq_full(wq))
			ret = -ENOMEM;
		else if (wr->num_sge < 0 || wr->num_sge > wq->max_sge)
			ret = -EINVAL;
		if (ret)
			break;
		wqe = ehca_wqe_start(wq);
		ehca_wqe_sges(wqe, EHCA_WQE_SGES, wr->sg_list, wr->num_sge);
		ehca_wq_push(wq, wr->wr_id, IB_WC_RECV, true);
		n++;
	}
	ehca_wq_ring(wq, EHCA_QPX_RQA, n);
	spin_unlock_irqrestore(&wq->lock, irqflags);
	if (ret)
		*bad_wr = wr;
	return ret;
}
