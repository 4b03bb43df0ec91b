// SPDX-License-Identifier: Apache-2.0

// Package pki makes the short-lived certificates and keys of a test cluster: one authority, the API server's certificate,
// its client certificate for kubelets, and the key that signs service account tokens. Package cluster calls it.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const life = 30 * 24 * time.Hour

// Authority signs certificates for one cluster.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	now  time.Time
}

// Pair is a certificate and its key, PEM.
type Pair struct{ Cert, Key []byte }

// Subject is the name, the groups and the addresses in a certificate.
type Subject struct {
	Name   string
	Groups []string
	DNS    []string
	IPs    []net.IP
}

// NewAuthority makes a self-signed authority. The validity starts an hour early: guests' clocks may lag.
func NewAuthority(name string, now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("key of the authority %s: %w", name, err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(life),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("certificate of the authority %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("certificate of the authority %s: %w", name, err)
	}
	return &Authority{cert: cert, key: key, now: now}, nil
}

// CertPEM is the authority's certificate.
func (a *Authority) CertPEM() []byte { return encode("CERTIFICATE", a.cert.Raw) }

// Issue makes a certificate that is valid for both ends of TLS.
func (a *Authority) Issue(s Subject) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("key of %s: %w", s.Name, err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return Pair{}, fmt.Errorf("serial number for %s: %w", s.Name, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: s.Name, Organization: s.Groups},
		NotBefore: a.now.Add(-time.Hour), NotAfter: a.now.Add(life),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    s.DNS, IPAddresses: s.IPs,
	}, a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("certificate of %s: %w", s.Name, err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("key of %s: %w", s.Name, err)
	}
	return Pair{Cert: encode("CERTIFICATE", der), Key: encode("PRIVATE KEY", keyDER)}, nil
}

// SigningKey makes the key pair for service account tokens, PEM: public key, private key.
func SigningKey() (public, private []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("service account key: %w", err)
	}
	priv, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("service account key: %w", err)
	}
	pub, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, nil, fmt.Errorf("service account public key: %w", err)
	}
	return encode("PUBLIC KEY", pub), encode("PRIVATE KEY", priv), nil
}

// Write writes all keys and certificates of a control plane to dir: ca.crt, apiserver.{crt,key},
// kubelet-client.{crt,key}, sa.{pub,key}. The API server's certificate is valid for ips.
func Write(dir string, now time.Time, ips []net.IP) error {
	ca, err := NewAuthority("cpumem-test", now)
	if err != nil {
		return err
	}
	server, err := ca.Issue(Subject{
		Name: "kube-apiserver", IPs: ips,
		DNS: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
	})
	if err != nil {
		return err
	}
	client, err := ca.Issue(Subject{Name: "kube-apiserver-kubelet-client", Groups: []string{"system:masters"}})
	if err != nil {
		return err
	}
	public, private, err := SigningKey()
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{
		"ca.crt": ca.CertPEM(), "apiserver.crt": server.Cert, "apiserver.key": server.Key,
		"kubelet-client.crt": client.Cert, "kubelet-client.key": client.Key, "sa.pub": public, "sa.key": private,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return fmt.Errorf("write the cluster's keys: %w", err)
		}
	}
	return nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
