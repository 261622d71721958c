#!/bin/sh
# The peer and testbeds end, and the links of the peer go, if the package is removed, not if it is upgraded: deb says remove, rpm 0.
case "$1" in
remove | 0)
	if command -v systemctl >/dev/null; then
		systemctl --quiet --now disable chokepoint-peer.service || true
		systemctl --quiet stop 'chokepoint-bed@*.service' || true
	fi
	;;
esac
