set -e
cd "$1"
for k in id host other; do ssh-keygen -q -t ed25519 -N '' -f $k; done
cp id.pub authorized
chmod 600 authorized
for a in 198.18.1.2 198.18.2.2; do echo "$a $(cut -d' ' -f1,2 host.pub)"; done >known
for a in 198.18.2.2 pc2-key; do echo "$a $(cut -d' ' -f1,2 other.pub)"; done >wrong
: >unknown
sed "s,WORK,$1,g" <config.in >config
sed /IdentityFile/d <config >bare
