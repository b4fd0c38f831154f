# SPDX-License-Identifier: GPL-2.0-or-later
"""The exit statuses of `ehcalab`: 0 is passed."""

EXIT_FAILED = 1                       # an expectation did not come true
EXIT_BAD_INPUT = 2                    # a file or an argument is wrong
EXIT_TROUBLE = 3                      # the lab itself broke: no verdict
