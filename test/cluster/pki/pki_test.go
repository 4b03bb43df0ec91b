// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/test/cluster/pki"
)

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	address := net.IPv4(10, 89, 0, 1)
	require.NoError(t, pki.Write(dir, time.Now(), []net.IP{address}))
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(read(t, dir, "ca.crt")))

	server := leaf(t, dir, "apiserver")
	for _, host := range []string{"10.89.0.1", "kubernetes.default.svc"} {
		_, err := server.Verify(x509.VerifyOptions{DNSName: host, Roots: roots})
		require.NoError(t, err)
	}
	_, err := server.Verify(x509.VerifyOptions{DNSName: "10.89.0.2", Roots: roots})
	require.Error(t, err)

	client := leaf(t, dir, "kubelet-client")
	require.Equal(t, []string{"system:masters"}, client.Subject.Organization)
	_, err = client.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	require.NoError(t, err)

	private, _ := pem.Decode(read(t, dir, "sa.key"))
	key, err := x509.ParsePKCS8PrivateKey(private.Bytes)
	require.NoError(t, err)
	public, _ := pem.Decode(read(t, dir, "sa.pub"))
	pub, err := x509.ParsePKIXPublicKey(public.Bytes)
	require.NoError(t, err)
	require.True(t, key.(*ecdsa.PrivateKey).PublicKey.Equal(pub))
}

func TestValidityAllowsForClocksBehind(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	ca, err := pki.NewAuthority("a", now)
	require.NoError(t, err)
	pair, err := ca.Issue(pki.Subject{Name: "s"})
	require.NoError(t, err)
	block, _ := pem.Decode(pair.Cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	require.True(t, cert.NotBefore.Before(now.Add(-30*time.Minute)))
	require.True(t, cert.NotAfter.After(now.Add(24*time.Hour)))
}

func leaf(t *testing.T, dir, name string) *x509.Certificate {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"))
	require.NoError(t, err)
	return pair.Leaf
}

func read(t *testing.T, dir, name string) []byte {
	data, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	return data
}
