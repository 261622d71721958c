#!/bin/sh
# Compiles frames.c for both byte orders. The bytes depend on the compiler:
# Debian 12's clang 14 makes the committed ones, from any folder.
set -eu
clang=clang
if command -v clang-14 >/dev/null; then clang=clang-14; fi
case $("$clang" --version) in
*"clang version 14."*) ;;
*)
	echo "$0: want clang 14, have: $("$clang" --version | head -n 1)" >&2
	exit 1
	;;
esac
for order in el eb; do
	"$clang" -target "bpf$order" -mcpu=v3 -O2 -Wall -Wextra -Werror -Wno-unused-parameter \
		-fno-ident -fno-stack-protector -c frames.c -o "frames_bpf$order.o"
done
