#!/bin/sh
# The program runs on every OpenWrt of the architecture @ARCH@, whose full name also says the CPU.
[ ! -e "${IPKG_INSTROOT}/etc/openwrt_release" ] || . "${IPKG_INSTROOT}/etc/openwrt_release"
case "$DISTRIB_ARCH" in
'' | @ARCH@ | @ARCH@_*) ;;
*)
	echo "chokepoint-agent: this package is for @ARCH@, the router is $DISTRIB_ARCH: install another" >&2
	exit 1
	;;
esac
