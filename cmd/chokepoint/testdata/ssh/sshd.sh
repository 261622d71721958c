# In a view of the files of its own, where nobody else is copied to: a user more, who may use sudo. The login shell of root says something of its own.
exec unshare -m sh -ec '
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /var/tmp
mkdir -p /run/own/tmp /run/own$0
mount --bind $0 /run/own$0
chmod 1777 /run/own/tmp
mount --rbind /run/own/tmp /tmp
mkdir /run/sshd /run/etc
install -m 644 $0/authorized /run/authorized
printf "#!/bin/sh\necho Welcome to \$0\nexec /bin/sh \"\$@\"\n" >/run/etc/shell
chmod 755 /run/etc/shell
sed "/^root:/s|[^:]*\$|/run/etc/shell|" /etc/passwd >/run/etc/passwd
echo "tester:x:12345:12345::/tmp:/bin/sh" >>/run/etc/passwd
echo "guest:x:12346:12346::/tmp:/bin/sh" >>/run/etc/passwd
cp /etc/shadow /run/etc/shadow
echo "tester:*:19000:0:99999:7:::" >>/run/etc/shadow
echo "guest:*:19000:0:99999:7:::" >>/run/etc/shadow
mount --bind /run/etc/passwd /etc/passwd
mount --bind /run/etc/shadow /etc/shadow
[ $1 != router ] || mount --bind $0/release /etc/os-release
if [ -d /etc/sudoers.d ]; then
	mkdir /run/etc/sudoers.d
	echo "tester ALL=(ALL) NOPASSWD: ALL" >/run/etc/sudoers.d/tester
	mount --bind /run/etc/sudoers.d /etc/sudoers.d
fi
echo $$ >$0/$1.pid
sed "s,^\(root:.*\):[^:]*\$,\1:/bin/sh," /etc/passwd >/run/passwd # no .bashrc of this machine is read at each login
mount --bind /run/passwd /etc/passwd
exec $(command -v sshd) -D -f /dev/null -o HostKey=$0/host -o AuthorizedKeysFile=/run/authorized -o StrictModes=no \
	-o UsePAM=no -o PasswordAuthentication=no -o PermitRootLogin=yes -o PidFile=none -E $0/$1.log
' "$1" "$2"
