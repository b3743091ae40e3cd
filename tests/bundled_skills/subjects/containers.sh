# containers of podman and docker that restart, that were killed, and one with a published port
mkdir -p /run/proc /run/img/bin /etc/containers
mount -t proc proc /run/proc # sysctls of the network are the container's own, and both set them
mount --bind /run/proc/sys/net /proc/sys/net
cp /bin/busybox /run/img/bin/
for name in sh sleep; do ln -s busybox /run/img/bin/$name; done
tar -C /run/img -cf /run/img.tar .
printf '[containers]\ncgroups = "disabled"\n[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "crun"\n' \
  >/etc/containers/containers.conf
printf '[storage]\ndriver = "vfs"\ngraphroot = "/var/lib/containers/storage"\nrunroot = "/run/containers/storage"\n' \
  >/etc/containers/storage.conf
dockerd --iptables=false --ip-forward=false --bridge=none --storage-driver=vfs >/run/dockerd.log 2>&1 &
until_ "docker info >/dev/null 2>&1"
for engine in podman docker; do
  $engine import /run/img.tar tiny >/dev/null 2>&1
  $engine run -d --name shop --network none --restart on-failure:2 tiny \
    /bin/sh -c 'echo "FATAL: cannot read /config/shop.yaml"; exit 3' >/dev/null
  $engine run -d --name worker --network none tiny /bin/sleep 1000 >/dev/null
  $engine kill worker >/dev/null
  ! $engine run --name wrong --network none tiny /bin/shopd >/dev/null 2>&1
  until_ "$engine inspect shop | grep -qE '\"RestartCount\": 2'"
  until_ "$engine ps -a | grep shop | grep -q 'Exited (3)'"
  until_ "$engine ps -a | grep worker | grep -q 'Exited (137)'"
done
podman run -d --name web -p 8080:80 tiny /bin/sleep 1000 >/dev/null
