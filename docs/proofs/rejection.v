(* Single-draft rejection is lossless, and accepts Σ min(p, q): checked by Rocq (Coq 8.16).

   A draft x ~ p is kept with probability min(1, q(x)/p(x)); else the output is drawn with
   probabilities (q − p)₊ / Σ (q − p)₊. A pair of laws is a list of (p(x), q(x)), one for each
   token. Check with `coqc docs/proofs/rejection.v`. *)

From Coq Require Import Reals Lra List.
Import ListNotations.
Open Scope R_scope.

Definition pair_of_laws := list (R * R).

Fixpoint total (f : R -> R -> R) (laws : pair_of_laws) : R :=
  match laws with
  | [] => 0
  | (p, q) :: rest => f p q + total f rest
  end.

Definition keep (p q : R) : R := if Rlt_dec 0 p then Rmin 1 (q / p) else 1.
Definition excess (p q : R) : R := Rmax (q - p) 0.
Definition rejected (laws : pair_of_laws) : R := total (fun p q => p * (1 - keep p q)) laws.

(* The probability that the output is a token of masses p and q. *)
Definition output (laws : pair_of_laws) (p q : R) : R :=
  p * keep p q + rejected laws * (excess p q / total excess laws).

Definition masses (laws : pair_of_laws) : Prop :=
  forall p q, In (p, q) laws -> 0 <= p /\ 0 <= q.

Lemma kept_mass : forall p q, 0 <= p -> 0 <= q -> p * keep p q = Rmin p q.
Proof.
  intros p q Hp Hq. unfold keep. destruct (Rlt_dec 0 p) as [H | H].
  - unfold Rmin. destruct (Rle_dec 1 (q / p)) as [A | A]; destruct (Rle_dec p q) as [B | B].
    + lra.
    + exfalso. apply B. apply Rmult_le_compat_r with (r := p) in A; [ | lra ].
      replace (q / p * p) with q in A by (field; lra). lra.
    + exfalso. apply A. apply Rmult_le_reg_r with p; [ lra | ].
      replace (q / p * p) with q by (field; lra). lra.
    + field. lra.
  - assert (p = 0) by lra. subst. rewrite Rmin_left; lra.
Qed.

Lemma parts : forall p q, Rmin p q + excess p q = q.
Proof.
  intros p q. unfold excess, Rmin, Rmax.
  destruct (Rle_dec p q); destruct (Rle_dec (q - p) 0); lra.
Qed.

Lemma masses_rest : forall p q laws, masses ((p, q) :: laws) -> masses laws.
Proof. intros p q laws H x y I. apply H. right. exact I. Qed.

Lemma rejected_mass : forall laws, masses laws ->
  rejected laws = total (fun p _ => p) laws - total Rmin laws.
Proof.
  induction laws as [ | [p q] rest IH]; intros H; unfold rejected in *; simpl.
  - lra.
  - rewrite IH by (apply (masses_rest p q); exact H).
    destruct (H p q) as [Hp Hq]; [ left; reflexivity | ].
    pose proof (kept_mass p q Hp Hq). lra.
Qed.

Lemma excess_mass : forall laws,
  total excess laws = total (fun _ q => q) laws - total Rmin laws.
Proof.
  induction laws as [ | [p q] rest IH]; simpl.
  - lra.
  - pose proof (parts p q). lra.
Qed.

Lemma excess_positive : forall p q, 0 <= excess p q.
Proof. intros. unfold excess. apply Rmax_r. Qed.

Lemma total_excess_positive : forall laws, 0 <= total excess laws.
Proof.
  induction laws as [ | [p q] rest IH]; simpl; [ lra | ].
  pose proof (excess_positive p q). lra.
Qed.

Lemma no_excess : forall laws p q, total excess laws = 0 -> In (p, q) laws -> excess p q = 0.
Proof.
  induction laws as [ | [a b] rest IH]; simpl; intros p q Z I; [ contradiction | ].
  pose proof (excess_positive a b). pose proof (total_excess_positive rest).
  destruct I as [E | I].
  - injection E as -> ->. lra.
  - apply IH; [ lra | exact I ].
Qed.

Theorem lossless : forall laws, masses laws ->
  total (fun p _ => p) laws = 1 -> total (fun _ q => q) laws = 1 ->
  forall p q, In (p, q) laws -> output laws p q = q.
Proof.
  intros laws M P Q p q I. unfold output.
  rewrite (rejected_mass laws M), P. pose proof (excess_mass laws) as E. rewrite Q in E.
  rewrite <- E. destruct (M p q I) as [Hp Hq]. rewrite (kept_mass p q Hp Hq).
  destruct (Req_dec (total excess laws) 0) as [Z | Z].
  - rewrite Z. pose proof (no_excess laws p q Z I). pose proof (parts p q). lra.
  - replace (total excess laws * (excess p q / total excess laws)) with (excess p q)
      by (field; exact Z).
    apply parts.
Qed.

Theorem acceptance : forall laws, masses laws -> total (fun p _ => p) laws = 1 ->
  1 - rejected laws = total Rmin laws.
Proof. intros laws M P. rewrite (rejected_mass laws M), P. lra. Qed.

Print Assumptions lossless.
