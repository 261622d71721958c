#!/bin/sh
# systemd reads the unit again. After an upgrade a peer or testbed that runs is restarted with the new program; none is started:
# deb says configure and the version before, rpm how many versions are installed.
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
	case "$1 $2" in
	'configure '?* | 2*)
		invoke=systemctl
		! command -v deb-systemd-invoke >/dev/null || invoke=deb-systemd-invoke # asks the machine's policy
		"$invoke" try-restart chokepoint-peer.service 'chokepoint-bed@*.service' || true
		;;
	esac
fi
