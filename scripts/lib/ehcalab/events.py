# SPDX-License-Identifier: GPL-2.0-or-later
"""The names of all events, by who has them.

A scenario that waits for, or forbids, an event of a name that does not exist
is wrong: an `expect` would wait in vain, a `never` would never fail.  The
consumer's own names are compared with its source and manual by
tests/runner/test_events.py.
"""
from __future__ import annotations

CONSUMER = frozenset("""
    alternate_loaded apr_received apr_sent armed auto bench
    client_reregister cm_lost cm_notified comm_est command completion_error
    connect_failed connected connecting device_added device_fatal
    device_removed disconnected events_lost first_ack_after_migration
    first_message_after_migration gid_change lap_error lap_received lap_sent
    lid_change listening mark message_error migrate_refused
    migrated_by_software module_loaded mra_received mra_sent path_mig
    path_mig_err path_resolved path_retry pkey_change port_active port_err
    qp_error rearm_refused rearmed req_received reset sa_gid_in sa_gid_out
    sa_subscribed sa_unsubscribed sm_change sq_drained still_rearm
    traffic_started traffic_stopped traffic_stopping
    """.split())
# What the runner itself notes about a guest (lab.py).
RUNNER = frozenset("""
    booted driver_loaded driver_unloaded qemu_guest_panicked qemu_reset
    qemu_shutdown qemu_stop unreadable
    """.split())
ADAPTER = frozenset("""
    alt_loaded aqp1_defined events_lost first_payload mig_refused mig_state
    port_state qp_error qp_state
    """.split())
FABRIC = frozenset("""
    cable capture events_lost link mad node_attached node_error node_gone
    packet_dropped port_state trap
    """.split())
SM = frozenset("""
    sm_port_active sm_port_gone sm_report_sent sm_state sm_sweep_done
    sm_took_over
    """.split())


def names_of(source: str) -> frozenset[str]:
    """The events a source can have: NODE, NODE/hca, all, fabric or sm."""
    if source.endswith("/hca"):
        return ADAPTER
    return {"fabric": FABRIC, "sm": SM}.get(source, CONSUMER | RUNNER)
