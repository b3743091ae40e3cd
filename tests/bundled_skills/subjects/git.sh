# a merge with a conflict, a stash, a commit that a reset lost, and an index that is older than its files
export GIT_CONFIG_GLOBAL=/run/gitconfig HOME=/run
git config --global user.name Ada
git config --global user.email ada@shop.example
git config --global init.defaultBranch main
mkdir -p /srv/shop
git init -q --bare /srv/shop.git
cd /srv/shop
git init -q
git remote add origin /srv/shop.git
printf 'price=10\n' >shop.conf
echo readme >README
git add .
git commit -qm "Start the shop"
git push -q -u origin main
echo hours=9-17 >hours
git add hours
git commit -qm "Add the hours"
git reset -q --hard HEAD~1
echo draft >>README
git stash -q
git checkout -q -b sale
printf 'price=8\n' >shop.conf
git commit -qam "Lower the price"
git checkout -q main
printf 'price=12\n' >shop.conf
git commit -qam "Raise the price"
! git merge -q sale
touch -d '1 hour ago' README
chown -R root:root /srv
