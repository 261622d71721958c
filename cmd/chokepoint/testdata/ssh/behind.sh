# Nothing of a tunnel is left.
i=0
until [ -z "$(ip addr | grep -e tun1 -e 198.19.65)$(ip route | grep -e 198.19.1.0 -e 198.19.65.2)" ]; do
	i=$((i+1)); [ $i -lt 50 ] || { ip addr; ip route; exit 1; }; sleep 0.1
done
