#!/bin/sh
[ "$1" != bound ] || ip addr add "$ip/$mask" dev "$interface"
