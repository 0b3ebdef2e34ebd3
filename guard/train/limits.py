"""What the card says of the weights in words alone: their limits, and whom they owe."""

LIMITS = """
## Limits

* Labels of the sources disagree on what bias is; RedditBias labels in particular are noisy, and a
  stereotype that is praised, joked about or merely well known is labelled differently by each.
* It judges single sentences. Bias that only shows over a paragraph, in irony or in a comparison
  of answers is missed; so is much that needs knowledge of the world.
* Groups that the sources name often (by nationality, religion, gender, race, orientation) are
  judged better than those of age and appearance, for which only own texts exist, and of
  disability, for which little else does.
* Groups and attributes are words of the text, at most two and three a segment; there is no
  attribution where none stands out. A group named only in the sentence before is given by its
  pronoun.
* Short sentences that merely give a group or a member of one a property ("Muslims pray.", "He is
  gay.") are found biased at `strict`.
* A statement added to the index catches sentences that say the same of the same group. It does
  not teach a new kind of bias, and a sentence far from its wording is not found.
* Figures on single-sentence sets say little about long answers of a chat model; use
  `guard eval --data yours.csv` on your own texts.
"""

NOTICES = """
## Attribution

* Latent Hatred: Mai ElSherief, Caleb Ziems, David Muchlinski, Vaishnavi Anupindi, Jordyn Seybolt,
  Munmun De Choudhury, Diyi Yang. CC BY 4.0. Posts were cut into sentences.
* SeeGULL: Akshita Jha, Aida Mostafazadeh Davani, Chandan K. Reddy, Shachi Dave, Vinodkumar
  Prabhakaran, Sunipa Dev. CC BY 4.0. Pairs were put into sentences.
* StereoSet: Moin Nadeem, Anna Bethke, Siva Reddy. CC BY-SA 4.0. Used as training examples.
* BOLD: Jwala Dhamala, Tony Sun, Varun Kumar, Satyapriya Krishna, Yada Pruksachatkun, Kai-Wei
  Chang, Rahul Gupta. CC BY-SA 4.0. Used as training examples.
* RedditBias, EMGSD, HEARTS and ToxiGen are under the MIT licence.

No text of these sources is part of the files in this folder.
"""
