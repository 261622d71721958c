#!/bin/sh
# The peer and testbeds end, and the links that start them at boot go, if the package is removed, not if it is
# upgraded: deb says remove, rpm 0.
case "$1" in
remove | 0)
	if command -v systemctl >/dev/null; then
		systemctl --quiet --now disable chokepoint-peer.service || true
		for link in /etc/systemd/system/*.wants/chokepoint-bed@*.service; do
			[ ! -L "$link" ] || systemctl --quiet disable "${link##*/}" || true
		done
		systemctl --quiet stop 'chokepoint-bed@*.service' || true
	fi
	;;
esac
