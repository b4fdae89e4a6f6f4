/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FL_JPEG_ENTRY_INTERNAL_H
#define FL_JPEG_ENTRY_INTERNAL_H

#define FL_ENTRY_VERSION 1
#define FL_ENTRY_FIXED 28u // bytes before the bases

#endif
