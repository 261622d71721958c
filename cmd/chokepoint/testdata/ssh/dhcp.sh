busybox udhcpc -f -t 1000 -T 1 -A 1 -i wan -s $1/udhcpc.sh &
echo $! >$1/udhcpc.pid
wait
exit 0
