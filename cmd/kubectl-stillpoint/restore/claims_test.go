// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

func TestNames(t *testing.T) {
	for name, c := range map[string]struct {
		naming Naming
		claims []string
		want   map[string]string
		err    string
	}{
		"a suffix":                     {Naming{Suffix: "-x"}, []string{"a", "b"}, map[string]string{"a": "a-x", "b": "b-x"}, ""},
		"no suffix: the same names":    {Naming{}, []string{"a"}, map[string]string{"a": "a"}, ""},
		"one name":                     {Naming{Into: []string{"x"}}, []string{"a"}, map[string]string{"a": "x"}, ""},
		"names in order":               {Naming{Into: []string{"x", "y"}}, []string{"b", "a"}, map[string]string{"b": "x", "a": "y"}, ""},
		"too few names":                {Naming{Into: []string{"x"}}, []string{"a", "b"}, nil, "--into names 1 claims and 2 are restored (a, b): write old=new for each"},
		"pairs":                        {Naming{Into: []string{"b=x", "a=y"}}, []string{"a", "b"}, map[string]string{"a": "y", "b": "x"}, ""},
		"a pair of another claim":      {Naming{Into: []string{"c=x"}}, []string{"a"}, nil, "claim c is not among those that are restored (a)"},
		"a pair is missing":            {Naming{Into: []string{"a=x"}}, []string{"a", "b"}, nil, "--into says nothing about claim b"},
		"pairs and names":              {Naming{Into: []string{"a=x", "y"}}, []string{"a", "b"}, nil, "--into mixes names and old=new"},
		"two become one":               {Naming{Into: []string{"a=x", "b=x"}}, []string{"a", "b"}, nil, "claims a and b would both become x"},
		"a name that is none":          {Naming{Suffix: "_X"}, []string{"a"}, nil, `the new claim of a cannot be called "a_X"`},
		"a StatefulSet":                {Naming{StatefulSet: "web", As: "web2"}, []string{"data-web-0", "log-web-11"}, map[string]string{"data-web-0": "data-web2-0", "log-web-11": "log-web2-11"}, ""},
		"a claim of no StatefulSet":    {Naming{StatefulSet: "web", As: "web2"}, []string{"data-web"}, nil, "claim data-web is not one of StatefulSet web"},
		"a StatefulSet with a - in it": {Naming{StatefulSet: "my-web", As: "w"}, []string{"data-my-web-0"}, map[string]string{"data-my-web-0": "data-w-0"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			names, err := c.naming.Names(c.claims)
			if c.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(c.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(names).To(Equal(c.want))
		})
	}
}

func TestOfStatefulSet(t *testing.T) {
	set := func(name string, templates ...string) appsv1.StatefulSet {
		s := appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, n := range templates {
			s.Spec.VolumeClaimTemplates = append(s.Spec.VolumeClaimTemplates, corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: n}})
		}
		return s
	}
	claims := []string{"data-web-0", "data-web-1", "log-web-0", "data-my-web-0", "data-web", "web-0", "data-web-0-restored"}
	g := NewWithT(t)
	g.Expect(OfStatefulSet("web", claims, nil)).To(Equal([]string{"data-web-0", "data-web-1", "log-web-0", "data-my-web-0"}), "by the names alone")
	g.Expect(OfStatefulSet("web", claims, []appsv1.StatefulSet{set("my-web", "data")})).To(Equal([]string{"data-web-0", "data-web-1", "log-web-0"}), "another set owns one of them")
	g.Expect(OfStatefulSet("web", claims, []appsv1.StatefulSet{set("web", "data")})).To(Equal([]string{"data-web-0", "data-web-1"}), "its own templates decide")
}

func TestClaims(t *testing.T) {
	gone := []corev1.PersistentVolumeClaim{}
	bound := []corev1.PersistentVolumeClaim{claim("a", 0)}
	schedule := &v1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: v1.SnapshotScheduleSpec{ClaimSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}}}
	block := corev1.PersistentVolumeBlock
	content := func(driver string, mode *corev1.PersistentVolumeMode) Storage {
		return Storage{Contents: map[string]snapshotv1.VolumeSnapshotContent{"a-s-202603010300": {Spec: snapshotv1.VolumeSnapshotContentSpec{Driver: driver, SourceVolumeMode: mode}}},
			Classes: map[string]storagev1.StorageClass{"fast": {Provisioner: "csi.a"}, "slow": {Provisioner: "csi.b"}}}
	}
	for name, c := range map[string]struct {
		change    func(*snapshotv1.VolumeSnapshot)
		originals []corev1.PersistentVolumeClaim
		shape     Shape
		storage   Storage
		check     func(*WithT, Item)
		err       string
	}{
		"as the original": {originals: bound, check: func(g *WithT, i Item) {
			g.Expect(i.New.Name).To(Equal("new"))
			g.Expect(*i.New.Spec.StorageClassName).To(Equal("fast"))
			g.Expect(i.New.Spec.AccessModes).To(Equal([]corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}))
			g.Expect(i.New.Spec.DataSource.Name).To(Equal("a-s-202603010300"))
			g.Expect(i.New.Labels).To(Equal(map[string]string{"app": "db"}), "what the schedule selects by, and nothing else")
			g.Expect(i.New.Annotations).To(Equal(map[string]string{v1.AnnotationRestoredFrom: "a-s-202603010300"}))
			g.Expect(i.New.Spec.VolumeName).To(BeEmpty())
		}},
		"the original asks for more than the snapshot needs": {originals: bound, check: func(g *WithT, i Item) { g.Expect(i.size()).To(Equal("8Gi")) }},
		"the snapshot needs more than the original asks for": {originals: bound, change: func(s *snapshotv1.VolumeSnapshot) { s.Status.RestoreSize = ptr.To(resource.MustParse("9Gi")) },
			check: func(g *WithT, i Item) { g.Expect(i.size()).To(Equal("9Gi")) }},
		"the snapshot says nothing": {originals: bound, change: func(s *snapshotv1.VolumeSnapshot) { s.Status.RestoreSize = nil }, check: func(g *WithT, i Item) { g.Expect(i.size()).To(Equal("8Gi")) }},
		"more is asked for":         {originals: bound, shape: Shape{Size: ptr.To(resource.MustParse("20Gi"))}, check: func(g *WithT, i Item) { g.Expect(i.size()).To(Equal("20Gi")) }},
		"less is asked for":         {originals: bound, shape: Shape{Size: ptr.To(resource.MustParse("1Gi"))}, err: "--size 1Gi is less than the 5Gi that snapshot a-s-202603010300 needs"},
		"the original is gone": {originals: gone,
			err: "nothing was created: --storage-class NAME is needed: the original of a does not exist any more (or has none) to take it from; --access-modes ReadWriteOnce is needed"},
		"the original is gone and all is said": {originals: gone, shape: Shape{StorageClass: "fast", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}}, check: func(g *WithT, i Item) {
			g.Expect(i.size()).To(Equal("5Gi"))
			g.Expect(*i.New.Spec.StorageClassName).To(Equal("fast"))
			g.Expect(i.New.Spec.AccessModes).To(Equal([]corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}))
			g.Expect(i.New.Labels).To(Equal(map[string]string{"app": "db"}), "the schedule goes on taking it")
		}},
		"the original is gone and nobody knows its size": {originals: gone, change: func(s *snapshotv1.VolumeSnapshot) { s.Status.RestoreSize = nil },
			shape: Shape{StorageClass: "fast", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}}, err: "--size 10Gi is needed"},
		"the original was bound by hand": {originals: []corev1.PersistentVolumeClaim{claim("a", 0, func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr.To("") })}, err: "--storage-class NAME is needed"},
		"the original was created again": {originals: []corev1.PersistentVolumeClaim{claim("a", 0, func(c *corev1.PersistentVolumeClaim) { c.UID = "another" })}, check: func(g *WithT, i Item) {
			g.Expect(i.Notes).To(ConsistOf(ContainSubstring("was deleted and created again since")))
			g.Expect(*i.New.Spec.StorageClassName).To(Equal("fast"))
		}},
		"the original's own snapshot class stays its own": {originals: []corev1.PersistentVolumeClaim{claim("a", 0, func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{v1.AnnotationSnapshotClass: "gold", "volume.kubernetes.io/selected-node": "n"}
		})}, check: func(g *WithT, i Item) {
			g.Expect(i.New.Annotations).To(Equal(map[string]string{v1.AnnotationRestoredFrom: "a-s-202603010300", v1.AnnotationSnapshotClass: "gold"}))
		}},
		"a block volume":                 {originals: []corev1.PersistentVolumeClaim{claim("a", 0, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = &block })}, check: func(g *WithT, i Item) { g.Expect(*i.New.Spec.VolumeMode).To(Equal(block)) }},
		"a block volume that is gone":    {originals: gone, shape: Shape{StorageClass: "fast", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}, storage: content("csi.a", &block), check: func(g *WithT, i Item) { g.Expect(*i.New.Spec.VolumeMode).To(Equal(block)) }},
		"a block volume as a filesystem": {originals: bound, storage: content("csi.a", &block), err: "set --volume-mode Block"},
		"a class of another driver":      {originals: bound, shape: Shape{StorageClass: "slow"}, storage: content("csi.a", nil), err: "StorageClass slow is of driver csi.b and snapshot a-s-202603010300 of csi.a"},
		"a class of the same driver":     {originals: bound, storage: content("csi.a", nil), check: func(g *WithT, i Item) { g.Expect(i.Notes).To(BeEmpty()) }},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := snap("a", 3, "r3")
			if c.change != nil {
				c.change(&s)
			}
			choice := &Choice{Point: &Point{}, Members: []Member{{Claim: "a", ClaimUID: "uid-a", Snapshot: &s}}}
			items, err := Claims(choice, map[string]string{"a": "new"}, c.originals, schedule, c.shape, c.storage)
			if c.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(c.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(items).To(HaveLen(1))
			c.check(g, items[0])
		})
	}
}

func (i Item) size() string {
	q := i.New.Spec.Resources.Requests[corev1.ResourceStorage]
	return q.String()
}

func TestCollisions(t *testing.T) {
	g := NewWithT(t)
	existing := []corev1.PersistentVolumeClaim{claim("a-x", 1), claim("b-x", 2, func(c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{v1.AnnotationRestoredFrom: "snap"}
	})}
	g.Expect(Collisions([]string{"a", "b", "c"}, map[string]string{"a": "a-x", "b": "b-x", "c": "c-x"}, existing)).To(Equal([]string{
		"claim a-x exists", "claim b-x exists (restored from snapshot snap at 2026-03-01T02:00:00Z)"}))
}
