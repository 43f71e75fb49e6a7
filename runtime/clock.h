/* clock.h: the clock of all measurements. */
#ifndef SN_CLOCK_H
#define SN_CLOCK_H

double sn_clock(void); /* seconds of a monotonic clock */

#endif
