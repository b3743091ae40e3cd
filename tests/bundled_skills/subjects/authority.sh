# sourced: a root authority, one below it, and `issue DAYS NAME`, which makes NAME.key, NAME.crt, NAME.chain
mkdir -p /etc/tls
cd /etc/tls
openssl req -x509 -newkey rsa:2048 -nodes -keyout root.key -out root.crt -days 900 -subj "/CN=Test Root" 2>/dev/null
openssl req -newkey rsa:2048 -nodes -keyout ca.key -out ca.csr -subj "/CN=Test Authority" 2>/dev/null
echo "basicConstraints=critical,CA:true" >ca.ext
openssl x509 -req -in ca.csr -CA root.crt -CAkey root.key -CAcreateserial -days 800 -extfile ca.ext -out ca.crt 2>/dev/null
cp root.crt "/etc/ssl/certs/$(openssl x509 -in root.crt -noout -hash).0"
issue() {
  openssl req -newkey rsa:2048 -nodes -keyout "$2.key" -out "$2.csr" -subj "/CN=localhost" 2>/dev/null
  echo "subjectAltName=DNS:localhost,DNS:shop.example" >"$2.ext"
  openssl x509 -req -in "$2.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days "$1" -extfile "$2.ext" -out "$2.crt" \
    2>/dev/null
  cat "$2.crt" ca.crt >"$2.chain"
}
