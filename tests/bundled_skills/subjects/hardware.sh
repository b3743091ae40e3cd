# a disk that warns of its end, sectors of it that cannot be read, and an array that lost a disk
insmod /opt/modules/md-mod.ko
insmod /opt/modules/raid1.ko
mdadm --create /dev/md0 --run --level 1 --raid-devices 2 --metadata 1.2 /dev/nvme1n1 missing
! dd if=/dev/nvme0n1 of=/dev/null bs=4096 skip=256 count=1 iflag=direct
! grep -q sync /proc/mdstat
