# SPDX-License-Identifier: GPL-2.0-or-later
"""Everything scripts/ needs: set-up of the lab, guests, and the checks."""
